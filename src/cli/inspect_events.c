/* inspect_events.c - TensorBoard's event files: a file, a run's folder, or a
 * folder of runs, as TensorBoard takes its --logdir. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <manta/events.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/table.h"
#include "cli/work.h"

enum { DEEPEST = 8 }; /* folders in folders; a link that leads back ends here */

/* ---- finding the runs ---- */

typedef struct runs {
    int n, cap;
    char **at; /* owned paths */
} runs;

static void runs_add(runs *r, const char *path)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->at = realloc(r->at, (size_t)r->cap * sizeof *r->at);
        if (!r->at) abort();
    }
    if (!(r->at[r->n++] = strdup(path))) abort();
}

static void runs_release(runs *r)
{
    for (int i = 0; i < r->n; i++) free(r->at[i]);
    free(r->at);
}

static bool is_folder(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Adds the folders in and under this one that hold event files, in the order of names. */
static void find_runs(const char *folder, int depth, runs *out)
{
    struct dirent **names;
    int n = scandir(folder, &names, NULL, alphasort);
    bool found = false;

    if (n < 0) return; /* one that may not be read holds nothing for us */
    for (int i = 0; i < n && !found; i++) found = strstr(names[i]->d_name, "tfevents") != NULL;
    if (found) runs_add(out, folder);
    for (int i = 0; i < n; i++) {
        char *path;
        if (names[i]->d_name[0] != '.' && names[i]->d_type != DT_REG && depth < DEEPEST) {
            if (asprintf(&path, "%s/%s", folder, names[i]->d_name) < 0) abort();
            if (is_folder(path)) find_runs(path, depth + 1, out);
            free(path);
        }
        free(names[i]);
    }
    free(names);
}

bool inspect_is_events(const char *path)
{
    const char *slash = strrchr(path, '/');
    char head[64];
    size_t n;
    runs r = {0};
    bool found;

    if (!is_folder(path)) {
        if (strstr(slash ? slash : path, "tfevents")) return true;
        n = inspect_head(path, head, sizeof head);
        return memmem(head, n, "brain.Event:", 12) != NULL;
    }
    find_runs(path, 0, &r);
    found = r.n > 0;
    runs_release(&r);
    return found;
}

/* ---- showing one ---- */

static const char *kind_name(manta_events_kind k)
{
    switch (k) {
    case MANTA_EVENTS_SCALAR: return "scalar";
    case MANTA_EVENTS_HISTOGRAM: return "histogram";
    case MANTA_EVENTS_TEXT: return "text";
    case MANTA_EVENTS_IMAGE: return "image";
    case MANTA_EVENTS_HPARAMS: return "hparams";
    case MANTA_EVENTS_OTHER: break;
    }
    return "other";
}

static void last_cell(table *t, const manta_events_tag *tag)
{
    if (tag->kind == MANTA_EVENTS_SCALAR && tag->count) {
        table_add(t, "%.6g", tag->points[tag->count - 1].value);
    } else if (tag->text) {
        int n = (int)strcspn(tag->text, "\n");
        table_add(t, "%.*s%s", n < 40 ? n : 40, tag->text, n < 40 && !tag->text[n] ? "" : " ...");
    } else {
        table_add(t, "%s", "");
    }
}

static void log_table(const manta_events_log *l)
{
    static const char *const heads[] = {"tag",        "kind",       ">points", ">first step",
                                        ">last step", "last value", NULL};
    int64_t purged = manta_events_purged(l);
    table *t = table_new(heads);

    for (int i = 0; i < manta_events_tags(l); i++) {
        manta_events_tag tag = manta_events_tag_at(l, i);
        table_add(t, "%s", tag.name);
        table_add(t, "%s", kind_name(tag.kind));
        table_add(t, "%" PRId64, tag.count);
        if (tag.count) {
            table_add(t, "%" PRId64, tag.points[0].step);
            table_add(t, "%" PRId64, tag.points[tag.count - 1].step);
        } else {
            table_add(t, "%s", "");
            table_add(t, "%s", "");
        }
        last_cell(t, &tag);
    }
    table_print(t);
    print_out("\n%d tags, %" PRId64 " records%s", manta_events_tags(l), manta_events_records(l),
              manta_events_has_graph(l) ? ", with a graph" : "");
    if (purged) print_out(", %" PRId64 " points taken back by a restart", purged);
    print_out("\n");
    if (manta_events_damage(l)) {
        print_out("reading ended early: %s\n", manta_events_damage(l));
    }
}

static json_t *tag_json(const manta_events_tag *tag)
{
    const manta_events_point *last = tag->count ? &tag->points[tag->count - 1] : NULL;
    json_t *value = json_null();

    if (tag->kind == MANTA_EVENTS_SCALAR && last) value = json_number(last->value);
    if (tag->text) value = json_text(tag->text);
    return json_pack("{s:o, s:s, s:o, s:I, s:o, s:o, s:o}", "name", json_text(tag->name), "kind",
                     kind_name(tag->kind), "plugin", json_text(tag->plugin), "points", (json_int_t)tag->count,
                     "first_step", last ? json_integer(tag->points[0].step) : json_null(), "last_step",
                     last ? json_integer(last->step) : json_null(), "last", value);
}

static json_t *log_json(const manta_events_log *l, const char *path)
{
    const char *damage = manta_events_damage(l);
    json_t *tags = json_array();

    for (int i = 0; i < manta_events_tags(l); i++) {
        manta_events_tag tag = manta_events_tag_at(l, i);
        json_array_append_new(tags, tag_json(&tag));
    }
    return json_pack("{s:o, s:I, s:I, s:b, s:o, s:o}", "path", json_text(path), "records",
                     (json_int_t)manta_events_records(l), "purged", (json_int_t)manta_events_purged(l),
                     "graph", manta_events_has_graph(l), "damage", damage ? json_text(damage) : json_null(),
                     "tags", tags);
}

/* ---- all of them ---- */

int inspect_events(const char *path, bool json)
{
    json_t *list = json_array();
    int status = CLI_DONE;
    runs r = {0};

    if (is_folder(path)) {
        find_runs(path, 0, &r);
    } else {
        runs_add(&r, path);
    }
    for (int i = 0; i < r.n && status == CLI_DONE; i++) {
        manta_events_log *l = NULL;
        if (manta_events_read(r.at[i], &l)) {
            status = cli_fail();
        } else if (json) {
            json_array_append_new(list, log_json(l, r.at[i]));
        } else {
            if (r.n > 1) {
                if (i) print_out("\n");
                print_out("%s\n", r.at[i]);
            }
            log_table(l);
        }
        manta_events_log_free(l);
    }
    if (json && status == CLI_DONE) {
        json_emit(json_pack("{s:s, s:o, s:O}", "kind", "events", "path", json_text(path), "runs", list));
    }
    json_decref(list);
    runs_release(&r);
    return status;
}
