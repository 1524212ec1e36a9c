/* inspect_data.c - a dataset: what a sample is made of, and how many there are. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <manta/tool_text.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/table.h"
#include "cli/work.h"

/* Whether one of the names in spec is that of a data file. An ending stands
 * before the end or a sign, .tfrecords apart: f.target is no .tar. */
static bool has_ending(const char *spec)
{
    static const char *const endings[] = {".tfrecord", ".tfrecords", ".tar",  ".parquet", ".tsv",
                                          ".csv",      ".npy,",      ".npz:", "-ubyte"};

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const char *hit = strstr(spec, endings[i]);
        if (!hit || hit == spec) continue;
        hit += strlen(endings[i]);
        if (!isalpha((unsigned char)*hit) || hit[-1] == ',' || hit[-1] == ':') return true;
    }
    return false;
}

bool inspect_is_data(const char *spec)
{
    struct stat st;
    const char *name;

    for (int i = 0; (name = manta_data_name(i)); i++) {
        size_t n = strlen(name);
        if (!strncmp(spec, name, n) && (!spec[n] || spec[n] == ':')) return true;
    }
    return has_ending(spec) || (!stat(spec, &st) && S_ISDIR(st.st_mode));
}

/* Reads one sample: a file may be opened and decoded later, and what is wrong
 * inside it is then told here. */
static manta_status read_one(manta_dataset *d)
{
    manta_loader *l = NULL;
    manta_status st = manta_loader_open(d, &(manta_loader_options){.readers = MANTA_NONE}, &l);
    manta_batch b;

    if (!st && !manta_loader_next(l, &b)) st = manta_loader_status(l);
    manta_loader_close(l);
    return st;
}

/* ---- which columns are x and y ---- */

static int64_t elements_of(const manta_column_spec *c)
{
    int64_t n = 1;

    for (int i = 0; i < c->ndim; i++) n *= c->shape[i];
    return n;
}

static bool is_label(const manta_column_spec *c)
{
    return strcasestr(c->name, "label") || strcasestr(c->name, "class") || strcasestr(c->name, "target");
}

/* Says what to write at --data for TFRecord files whose features nobody has named: the largest as x, and as
 * y what is called so, or else the last small one. */
static void suggest_columns(const char *spec, int n, const manta_column_spec *c)
{
    char text[4400], word[4800];
    int x = 0, y = -1;

    if (!strstr(spec, ".tfrecord") || strchr(spec, '=') || n < 2) return;
    for (int i = 1; i < n; i++) {
        if (elements_of(&c[i]) > elements_of(&c[x])) x = i;
    }
    for (int i = 0; i < n; i++) {
        if (i != x && (y < 0 || !is_label(&c[y]) || is_label(&c[i]))) y = i;
    }
    snprintf(text, sizeof text, "%s:x=%s,y=%s", spec, c[x].name, c[y].name);
    print_out("To train on it: --data %s\n", manta_shell_word(text, word, sizeof word));
}

static void show_table(manta_dataset *d, const char *spec)
{
    static const char *const heads[] = {"column", "shape", "dtype", NULL};
    const manta_column_spec *columns;
    int n = manta_dataset_columns(d, &columns);
    int64_t count = manta_dataset_count(d);
    table *t = table_new(heads);
    char text[256];

    for (int i = 0; i < n; i++) {
        table_add(t, "%s", columns[i].name);
        table_add(t, "%s", inspect_shape(columns[i].ndim, columns[i].shape, text, sizeof text));
        table_add(t, "%s", manta_dtype_name(columns[i].dtype));
    }
    table_print(t);
    if (count < 0) {
        print_out("\nan unknown number of samples\n");
    } else {
        print_out("\n%s sample%s\n", work_number(count, text, sizeof text), count == 1 ? "" : "s");
    }
    suggest_columns(spec, n, columns);
}

json_t *inspect_dataset_json(manta_dataset *d, const char *spec)
{
    const manta_column_spec *columns;
    int n = manta_dataset_columns(d, &columns);
    int64_t count = manta_dataset_count(d);
    json_t *list = json_array();

    for (int i = 0; i < n; i++) {
        json_array_append_new(list, json_pack("{s:o, s:o, s:s}", "name", json_text(columns[i].name), "shape",
                                              inspect_shape_json(columns[i].ndim, columns[i].shape), "dtype",
                                              manta_dtype_name(columns[i].dtype)));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "kind", "dataset", "path", json_text(spec), "samples",
                     count < 0 ? json_null() : json_integer(count), "columns", list);
}

/* ---- a file that no dataset can be made of before columns are chosen ---- */

static void facts_table(const manta_data_facts *f, const char *why)
{
    static const char *const columns[] = {"column", "type", "size", NULL};
    static const char *const members[] = {"member", "samples", "size", NULL};
    bool typed = !strcmp(f->format, "parquet");
    table *t = table_new(typed ? columns : members);
    char text[256];

    for (int i = 0; i < f->n; i++) {
        const manta_data_field *k = &f->fields[i];
        table_add(t, "%s", k->name);
        table_add(t, "%s", typed ? k->type : work_number(k->samples, text, sizeof text));
        table_add(t, "%s", inspect_size(k->bytes, text, sizeof text));
    }
    table_print(t);
    print_out("\n%s sample%s\n", work_number(f->samples, text, sizeof text), f->samples == 1 ? "" : "s");
    print_out("As data: %s\n", why);
}

static void facts_json(const manta_data_facts *f, const char *spec, const char *why)
{
    json_t *list = json_array();

    for (int i = 0; i < f->n; i++) {
        const manta_data_field *k = &f->fields[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:I, s:I}", "name", json_text(k->name), "type",
                                              *k->type ? json_text(k->type) : json_null(), "samples",
                                              (json_int_t)k->samples, "bytes", (json_int_t)k->bytes));
    }
    json_emit(json_pack("{s:s, s:o, s:s, s:I, s:o, s:o}", "kind", "samples", "path", json_text(spec),
                        "format", f->format, "samples", (json_int_t)f->samples, "fields", list, "as_data",
                        json_text(why)));
}

/* What the file holds, and what kept it from being a dataset. */
static int inspect_facts(const char *spec, bool json)
{
    char why[512];
    manta_data_facts f = {0};

    snprintf(why, sizeof why, "%s", manta_error_text());
    if (manta_data_describe(spec, &f)) {
        manta_status st = manta_fail(MANTA_EINVAL, "%s", why); /* the first failure says more */
        (void)st;
        return cli_fail();
    }
    if (json) {
        facts_json(&f, spec, why);
    } else {
        facts_table(&f, why);
    }
    manta_data_facts_release(&f);
    return CLI_DONE;
}

int inspect_data(const char *spec, bool json)
{
    /* As they lie in the file: bytes stay bytes, and a NaN is no reason to show nothing. */
    manta_open_options o = {.raw = true, .allow_nan = true};
    manta_dataset *d = NULL;
    int status = CLI_DONE;

    if (inspect_is_table(spec)) return inspect_table(spec, json);
    if (inspect_if_table(spec, json)) return CLI_DONE;
    if (manta_dataset_open(spec, &o, &d)) return inspect_facts(spec, json);
    if (read_one(d)) {
        status = cli_fail();
    } else if (json) {
        json_emit(inspect_dataset_json(d, spec));
    } else {
        show_table(d, spec);
    }
    manta_dataset_unref(d);
    return status;
}
