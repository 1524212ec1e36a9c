/* inspect_table.c - a table: its columns, what they hold, and how to train on it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <manta/data_file.h>
#include <manta/tool_text.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/table.h"
#include "cli/work.h"

bool inspect_is_table(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && (!strcmp(path + n - 4, ".csv") || !strcmp(path + n - 4, ".tsv"));
}

/* A day as people write it. */
static const char *day_text(double days, char *buf, size_t size)
{
    time_t t = (time_t)floor(days) * 86400;
    struct tm tm;

    if (!gmtime_r(&t, &tm) || !strftime(buf, size, "%Y-%m-%d", &tm)) snprintf(buf, size, "%.0f", days);
    return buf;
}

/* "3 different", "0 to 80", "2019-01-01 to 2024-05-31". Returns buf. */
static const char *values_text(const manta_table_column *c, char *buf, size_t size)
{
    char number[32], a[40], b[40];

    *buf = '\0';
    if (c->type == MANTA_TABLE_TYPE_CATEGORY)
        snprintf(buf, size, "%s different", work_number(c->distinct, number, sizeof number));
    if (isnan(c->least)) return buf;
    if (c->type == MANTA_TABLE_TYPE_NUMBER) snprintf(buf, size, "%g to %g", c->least, c->most);
    if (c->type == MANTA_TABLE_TYPE_DATE)
        snprintf(buf, size, "%s to %s", day_text(c->least, a, sizeof a), day_text(c->most, b, sizeof b));
    return buf;
}

static const char *examples_text(const manta_table_column *c, char *buf, size_t size)
{
    size_t n = 0;

    *buf = '\0';
    for (int i = 0; i < MANTA_TABLE_EXAMPLES && c->example[i] && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%.30s", i ? ", " : "", c->example[i]);
    return buf;
}

static const char *delimiter_text(char c)
{
    switch (c) {
    case ',': return "commas";
    case ';': return "semicolons";
    case '\t': return "tabs";
    case '|': return "bars";
    default: return "colons";
    }
}

static void show_columns(const manta_table_facts *f)
{
    static const char *const heads[] = {"column", "type", ">missing", "values", "examples", NULL};
    table *t = table_new(heads);
    char text[256];

    for (int i = 0; i < f->n; i++) {
        const manta_table_column *c = &f->columns[i];
        table_add(t, "%s", c->name);
        table_add(t, "%s", manta_table_type_name(c->type));
        table_add(t, "%s", work_number(c->missing, text, sizeof text));
        table_add(t, "%s", values_text(c, text, sizeof text));
        table_add(t, "%s", examples_text(c, text, sizeof text));
    }
    table_print(t);
}

static void show_notes(const manta_table_facts *f, const char *path)
{
    char number[32], word[4096];

    print_out("\n%s row%s", work_number(f->rows, number, sizeof number), f->rows == 1 ? "" : "s");
    if (f->delimiter)
        print_out(", %s between fields, %s", delimiter_text(f->delimiter),
                  f->has_header ? "the first line is a header" : "no header line");
    print_out("\n");
    for (int i = 0; i < f->n; i++) {
        const manta_table_column *c = &f->columns[i];
        if (!c->odd) continue;
        print_out("Column %s: %s value%s no %s, first in %s %" PRId64 "\n", c->name,
                  work_number(c->odd, number, sizeof number), c->odd == 1 ? " is" : "s are",
                  manta_table_type_name(c->type), f->delimiter ? "line" : "row", c->odd_row);
    }
    if (f->suggestion) {
        print_out("To train on it: --data %s\n", manta_shell_word(f->suggestion, word, sizeof word));
    } else {
        print_out("%s has no columns of which one could be learnt from the others\n", path);
    }
}

static json_t *column_json(const manta_table_column *c)
{
    json_t *examples = json_array();
    bool range = !isnan(c->least) && isfinite(c->least) && isfinite(c->most) &&
                 (c->type == MANTA_TABLE_TYPE_NUMBER || c->type == MANTA_TABLE_TYPE_DATE);

    for (int i = 0; i < MANTA_TABLE_EXAMPLES && c->example[i]; i++)
        json_array_append_new(examples, json_text(c->example[i]));
    return json_pack("{s:o, s:s, s:I, s:o, s:o, s:o, s:o, s:I}", "name", json_text(c->name), "type",
                     manta_table_type_name(c->type), "missing", (json_int_t)c->missing, "distinct",
                     c->type == MANTA_TABLE_TYPE_CATEGORY ? json_integer(c->distinct) : json_null(), "least",
                     range ? json_real(c->least) : json_null(), "most",
                     range ? json_real(c->most) : json_null(), "examples", examples, "odd",
                     (json_int_t)c->odd);
}

/* The dataset that all columns make, where they do, and the table beside it. */
static void show_json(const manta_table_facts *f, const char *path)
{
    manta_dataset *d = NULL;
    json_t *columns = json_array(), *about;
    char delimiter[2] = {f->delimiter, '\0'};

    for (int i = 0; i < f->n; i++) json_array_append_new(columns, column_json(&f->columns[i]));
    if (manta_dataset_open(path, &(manta_open_options){.raw = true, .allow_nan = true}, &d)) {
        about = json_pack("{s:s, s:o, s:I}", "kind", "table", "path", json_text(path), "samples",
                          (json_int_t)f->rows);
    } else {
        about = inspect_dataset_json(d, path);
    }
    json_object_set_new(about, "table",
                        json_pack("{s:s, s:o, s:o, s:I, s:o, s:o}", "format", f->format, "delimiter",
                                  f->delimiter ? json_text(delimiter) : json_null(), "header",
                                  f->delimiter ? json_boolean(f->has_header) : json_null(), "rows",
                                  (json_int_t)f->rows, "columns", columns, "as_data",
                                  f->suggestion ? json_text(f->suggestion) : json_null()));
    json_emit(about);
    manta_dataset_unref(d);
}

static void show_table(const manta_table_facts *f, const char *path, bool json)
{
    if (json) {
        show_json(f, path);
    } else {
        show_columns(f);
        show_notes(f, path);
    }
}

int inspect_table(const char *path, bool json)
{
    manta_table_facts f = {0};

    if (manta_table_describe(path, NULL, &f)) return cli_fail();
    show_table(&f, path, json);
    manta_table_facts_release(&f);
    return CLI_DONE;
}

bool inspect_if_table(const char *path, bool json)
{
    manta_table_facts f = {0};
    size_t n = strlen(path);
    bool fits = n > 8 && !strcmp(path + n - 8, ".parquet") && !manta_table_describe(path, NULL, &f);

    for (int i = 0; i < f.n; i++) fits = fits && !f.columns[i].refused;
    if (fits) show_table(&f, path, json);
    manta_table_facts_release(&f);
    return fits;
}
