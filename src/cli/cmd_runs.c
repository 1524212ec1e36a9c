/* cmd_runs.c - manta runs, logs, stop. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <manta/run.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/record.h"
#include "cli/runs.h"
#include "cli/stop.h"
#include "cli/suggest.h"
#include "cli/table.h"
#include "cli/work.h"

static const option_group listing = {
    "Runs:",
    (const cli_option[]){RUNS_STORAGE, {"json", OPTION_FLAG, NULL, "A JSON object a line for each"}, {0}}};

static const option_group logging = {
    "Logs:",
    (const cli_option[]){RUNS_STORAGE,
                         {"rank", OPTION_INT, "N", "Of this rank; all when not given"},
                         {"follow", OPTION_FLAG, NULL, "Go on as it grows, until the run ends; -f for short"},
                         {0}}};

/* ---- finding ---- */

static bool is_folder(const char *path)
{
    struct stat info;

    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

manta_status runs_find(const char *storage, const char *name, manta_run_info *out)
{
    suggestion s = suggest_for(name);
    manta_run_info *all;
    char path[1024];
    int n;

    if (!storage) storage = manta_run_storage();
    snprintf(path, sizeof path, "%s/%s", storage, name);
    if (strchr(name, '/')) snprintf(path, sizeof path, "%s", name);
    for (size_t k = strlen(path); k > 1 && path[k - 1] == '/';) path[--k] = '\0';
    manta_status st = manta_run_read(path, out);
    if (st != MANTA_ENOENT || is_folder(path)) return st; /* there, but it cannot be read */
    if (strchr(name, '/')) return manta_fail(MANTA_ENOENT, "there is no run in the folder %s", path);
    if (manta_runs_list(storage, &all, &n)) return MANTA_EIO;
    for (int i = 0; i < n; i++) suggest_offer(&s, all[i].name);
    st = s.best ? manta_fail(MANTA_ENOENT, "no run is called '%s' in %s; did you mean %s?", name, storage,
                             s.best)
                : manta_fail(MANTA_ENOENT, "no run is called '%s' in %s", name, storage);
    manta_runs_free(all);
    return st;
}

static manta_status find_run(const options *o, const char *name, manta_run_info *out)
{
    return runs_find(options_text(o, "storage"), name, out);
}

/* ---- list and show ---- */

static const char *time_text(double seconds, char *buf, size_t size)
{
    time_t t = (time_t)seconds;
    struct tm at;

    if (seconds <= 0 || !localtime_r(&t, &at) || !strftime(buf, size, "%Y-%m-%d %H:%M:%S", &at)) return "";
    return buf;
}

/* How long it was worked on, over all take-ups, so far; negative: that is not known. */
static double spent_seconds(const manta_run_info *r)
{
    double now = r->pid ? (double)time(NULL) - r->taken_s : 0;

    if (r->began_s <= 0 || r->taken_s <= 0) return -1;
    return now < -1 ? -1 : r->spent_s + (now > 0 ? now : 0); /* a clock that was set back says nothing */
}

static const char *span_text(const manta_run_info *r, char *buf, size_t size)
{
    double s = spent_seconds(r);

    if (s < 0) return "";
    if (s < 120) {
        snprintf(buf, size, "%.1fs", s);
    } else {
        long long whole = (long long)s;
        snprintf(buf, size, "%lldh%02lldm%02llds", whole / 3600, whole / 60 % 60, whole % 60);
    }
    return buf;
}

static json_t *run_json(const manta_run_info *r)
{
    json_t *metrics = json_object(), *o;

    json_add_metrics(metrics, &r->metrics);
    o = json_pack("{s:o, s:o, s:o, s:i, s:I, s:I, s:I, s:I, s:i, s:o}", "name", json_text(r->name), "path",
                  json_text(r->path), "status", json_text(r->status), "pid", r->pid, "began",
                  (json_int_t)r->began_s, "ended", (json_int_t)r->ended_s, "epoch", (json_int_t)r->epoch,
                  "step", (json_int_t)r->step, "checkpoints", r->n_checkpoints, "metrics", metrics);
    json_object_set_new(o, "spent", spent_seconds(r) < 0 ? json_null() : json_real(spent_seconds(r)));
    json_object_set_new(o, "resumed", json_integer(r->resumed));
    if (*r->error) json_object_set_new(o, "error", json_text(r->error));
    return o;
}

static const char *metrics_text(const manta_metrics *m, char *buf, size_t size)
{
    size_t at = 0;

    *buf = '\0';
    for (int i = 0; i < m->n && at + 1 < size; i++) {
        int n = snprintf(buf + at, size - at, "%s%s %.4g", i ? ", " : "", m->name[i], m->value[i]);
        at += n > 0 ? (size_t)n : 0;
    }
    return buf;
}

static int list_runs(const options *o)
{
    static const char *const heads[] = {"NAME", "STATUS", ">EPOCH", "BEGAN", ">TOOK", "METRICS", NULL};
    char when[32], took[32], metrics[200];
    manta_run_info *all;
    table *t;
    int n;

    if (manta_runs_list(options_text(o, "storage"), &all, &n)) return cli_fail();
    if (options_flag(o, "json")) {
        for (int i = 0; i < n; i++) json_emit(run_json(&all[i]));
    } else if (!n) {
        print_out("No runs in %s\n",
                  options_text(o, "storage") ? options_text(o, "storage") : manta_run_storage());
    } else {
        t = table_new(heads);
        for (int i = 0; i < n; i++) {
            table_add(t, "%s", all[i].name);
            table_add(t, "%s", all[i].status);
            table_add(t, "%" PRId64, all[i].epoch);
            table_add(t, "%s", time_text(all[i].began_s, when, sizeof when));
            table_add(t, "%s", span_text(&all[i], took, sizeof took));
            table_add(t, "%s", metrics_text(&all[i].metrics, metrics, sizeof metrics));
        }
        table_print(t);
    }
    manta_runs_free(all);
    return CLI_DONE;
}

/* A value of config.json as one would type it. Owned by the caller: free(). */
static char *value_text(const json_t *v)
{
    if (json_is_string(v)) return strdup(json_string_value(v));
    return json_is_null(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
}

/* The run's config.json. *out: owned by the caller. */
static manta_status read_config(const char *folder, json_t **out)
{
    char *text = NULL;
    json_error_t why;
    manta_status st = manta_run_read_config(folder, &text);

    if (st) return st;
    *out = json_loads(text, 0, &why);
    free(text);
    if (json_is_object(*out)) return MANTA_OK;
    json_decref(*out);
    *out = json_object();
    return MANTA_OK;
}

static void show_config(const char *folder)
{
    table *t = table_new((const char *const[]){"SETTING", "VALUE", NULL});
    json_t *config = NULL, *v;
    const char *key;

    print_out("\n");
    if (read_config(folder, &config)) {
        print_out("%s\n", manta_error_text());
    }
    json_object_foreach(config, key, v)
    {
        char *text = value_text(v);
        if (!text) continue; /* not set */
        table_add(t, "%s", key);
        table_add(t, "%s", text);
        free(text);
    }
    table_print(t);
    json_decref(config);
}

static void show_checkpoints(const char *folder)
{
    char path[1200], text[400];
    manta_checkpoints *m;
    const manta_checkpoint_info *info;
    const char *at;

    snprintf(path, sizeof path, "%s/checkpoints", folder);
    if (manta_checkpoints_open(path, &(manta_checkpoints_options){.read_only = true}, &m)) return;
    if (manta_checkpoints_count(m)) print_out("\n");
    for (int i = 0; manta_checkpoints_at(m, i, &at, &info); i++) {
        char place[64];
        metrics_text(&info->metrics, text, sizeof text);
        print_out("%s: %s%s%s\n", strrchr(at, '/') + 1, record_place(info, place, sizeof place),
                  *text ? "; " : "", text);
    }
    manta_checkpoints_close(m);
}

static int show_run(const options *o)
{
    char text[400];
    manta_run_info r;

    if (find_run(o, options_arg(o, 0), &r)) return cli_fail();
    if (options_flag(o, "json")) {
        json_emit(run_json(&r));
        return CLI_DONE;
    }
    print_out("%s in %s\n%s", r.name, r.path, r.status);
    if (r.pid) print_out(", process %d", r.pid);
    if (*time_text(r.began_s, text, sizeof text)) print_out("; began %s", text);
    if (*span_text(&r, text, sizeof text)) print_out("; took %s", text);
    if (r.resumed) print_out("; resumed %d time%s", r.resumed, r.resumed > 1 ? "s" : "");
    print_out("\nepoch %" PRId64 ", step %" PRId64, r.epoch, r.step);
    if (*metrics_text(&r.metrics, text, sizeof text)) print_out("; %s", text);
    print_out("\n");
    if (*r.error) {
        print_out("error: %s\n", r.error);
    }
    show_config(r.path);
    show_checkpoints(r.path);
    return CLI_DONE;
}

/* ---- compare ---- */

/* As checkpoints are kept by it without an order (manta/checkpoint.h). */
static bool greater_is_better(const char *metric)
{
    static const char *const good[] = {"acc", "auc", "precision", "recall", "f1", "fmeasure", "iou", "r2"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (strstr(metric, good[i])) return true;
    }
    return false;
}

static double best_of(const manta_run_series *s, int n, const char *name, double *last)
{
    double best = (double)NAN;

    *last = (double)NAN;
    for (int i = 0; i < n; i++) {
        if (strcmp(s[i].name, name) != 0) continue;
        for (int64_t k = 0; k < s[i].n; k++) {
            double v = s[i].points[k].value;
            bool greater = greater_is_better(name);
            *last = v;
            if (isnan(best) || (greater ? v > best : v < best)) best = v;
        }
    }
    return best;
}

static void add_number(table *t, double v)
{
    if (isnan(v)) {
        table_add(t, "-");
    } else {
        table_add(t, "%.6g", v);
    }
}

/* Settings that differ, by the names in config.json. */
static void compare_settings(const char *names[2], json_t *config[2])
{
    static const char *const heads[] = {"SETTING", "", "", NULL};
    const char *shown[] = {heads[0], names[0], names[1], NULL};
    table *t = table_new(shown);
    const char *key;
    json_t *v, *all = json_object();
    int differ = 0;

    json_object_update(all, config[0]);
    json_object_update(all, config[1]);
    json_object_foreach(all, key, v)
    {
        if (json_equal(json_object_get(config[0], key), json_object_get(config[1], key))) continue;
        differ++;
        table_add(t, "%s", key);
        for (int i = 0; i < 2; i++) {
            const json_t *mine = json_object_get(config[i], key);
            char *text = mine ? value_text(mine) : NULL;
            table_add(t, "%s", text ? text : "-");
            free(text);
        }
    }
    json_decref(all);
    if (differ) {
        table_print(t);
        print_out("\n");
    } else {
        print_out("The settings are the same.\n\n");
        table_print(t);
    }
}

static int compare_runs(const options *o)
{
    manta_run_info r[2];
    manta_run_series *s[2] = {NULL, NULL};
    const char *names[2];
    json_t *config[2];
    int n[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        if (find_run(o, options_arg(o, i), &r[i]) || manta_run_history(r[i].path, &s[i], &n[i]) ||
            read_config(r[i].path, &config[i]))
            return cli_fail();
        names[i] = r[i].name;
    }
    compare_settings(names, config);
    table *t = table_new(
        (const char *const[]){"METRIC", ">LAST OF A", ">LAST OF B", ">BEST OF A", ">BEST OF B", NULL});
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < n[i]; k++) {
            double last[2], best[2];
            bool seen = false;
            for (int j = 0; i && j < n[0]; j++) seen |= !strcmp(s[0][j].name, s[i][k].name);
            if (seen) continue;
            for (int j = 0; j < 2; j++) best[j] = best_of(s[j], n[j], s[i][k].name, &last[j]);
            table_add(t, "%s", s[i][k].name);
            add_number(t, last[0]);
            add_number(t, last[1]);
            add_number(t, best[0]);
            add_number(t, best[1]);
        }
    }
    table_print(t);
    for (int i = 0; i < 2; i++) {
        json_decref(config[i]);
        manta_run_history_free(s[i], n[i]);
    }
    return CLI_DONE;
}

/* ---- logs ---- */

typedef struct follower {
    manta_run_log_reader *in; /* NULL: nothing was said yet */
    char name[24]; /* "rank 1" */
    char line[8192]; /* one that has not ended */
    size_t n;
} follower;

static void show_line(follower *f, bool named)
{
    if (named) print_out("%s | ", f->name);
    f->line[f->n] = '\0';
    print_lines(f->line);
    print_out("\n");
    f->n = 0;
}

/* Shows what has come since the last look. A line that has not ended may still
 * grow, so it is shown only when nobody writes any more. */
static manta_status show_more(follower *f, bool named, bool ended)
{
    const char *text;
    size_t n;

    for (;;) {
        manta_status st = manta_run_log_read(f->in, &text, &n);
        if (st) return st;
        if (!n) break;
        for (size_t i = 0; i < n; i++) {
            bool whole = text[i] == '\n';
            if (!whole) f->line[f->n++] = text[i] ? text[i] : ' ';
            if (whole || f->n + 1 == sizeof f->line) show_line(f, named);
        }
    }
    if (ended && f->n) show_line(f, named);
    return MANTA_OK;
}

/* Opens a log, unless it is open. False: there is none. */
static bool open_log(follower *f, const char *folder, const char *role, int number)
{
    snprintf(f->name, sizeof f->name, "%s %d", role, number);
    return f->in || !manta_run_log_open(folder, role, number, &f->in);
}

/* Servers of parameters say little, and last. */
static manta_status show_servers(const char *folder)
{
    enum { SERVERS = 64 };
    static follower f;
    manta_status st = MANTA_OK;

    for (int i = 0; i < SERVERS && !st; i++) {
        f.in = NULL;
        if (open_log(&f, folder, "server", i)) st = show_more(&f, true, true);
        manta_run_log_close(f.in);
    }
    return st;
}

static int show_logs(const options *o)
{
    enum { RANKS = 256 };
    static follower files[RANKS];
    int64_t only = options_int(o, "rank", -1);
    bool follow = options_flag(o, "follow");
    manta_status st = MANTA_OK;
    manta_run_info r;
    int n = 0;

    if (find_run(o, options_arg(o, 0), &r)) return cli_fail();
    if (only >= RANKS) cli_usage("--rank: %" PRId64 ", expected 0 to %d", only, RANKS - 1);
    stop_install();
    for (;;) {
        bool running = follow && !manta_run_read(r.path, &r) && r.pid; /* before the last look */
        if (only >= 0) {
            n = open_log(&files[0], r.path, "rank", (int)only);
        } else {
            while (n < RANKS && open_log(&files[n], r.path, "rank", n)) n++;
        }
        if (!n && only >= 0 && !follow) {
            cli_note("run %s has no log of rank %" PRId64, r.name, only);
            return CLI_FAILED;
        }
        for (int i = 0; i < n && !st; i++) st = show_more(&files[i], only < 0 && n > 1, !running);
        if (!st && !running && only < 0) st = show_servers(r.path);
        if (st) return cli_fail();
        if (!cli_flush() || !running || stop_requested()) break;
        (void)poll(NULL, 0, 200); /* a file that grows wakes nobody */
    }
    for (int i = 0; i < n; i++) manta_run_log_close(files[i].in);
    return CLI_DONE;
}

/* ---- stop ---- */

/* Where the last checkpoint stands, or else the last report. Returns buf. */
static const char *last_place(const manta_run_info *r, char *buf, size_t size)
{
    char path[1200];
    manta_checkpoints *m;
    const manta_checkpoint_info *info;
    const char *at;

    snprintf(buf, size, "after epoch %" PRId64, r->epoch);
    snprintf(path, sizeof path, "%s/checkpoints", r->path);
    if (manta_checkpoints_open(path, &(manta_checkpoints_options){.read_only = true}, &m)) return buf;
    if (manta_checkpoints_at(m, manta_checkpoints_count(m) - 1, &at, &info)) record_place(info, buf, size);
    manta_checkpoints_close(m);
    return buf;
}

int runs_stop(const options *o)
{
    int64_t timeout = options_int(o, "timeout", 60);
    char place[64];
    manta_run_info r;

    if (find_run(o, options_arg(o, 0), &r)) return cli_fail();
    if (manta_run_stop(r.path, timeout > INT64_MAX / 1000 ? INT64_MAX : timeout * 1000)) return cli_fail();
    if (manta_run_read(r.path, &r)) return cli_fail();
    print_out("%s: %s, %s; %d checkpoint%s\n", r.name, r.status, last_place(&r, place, sizeof place),
              r.n_checkpoints, r.n_checkpoints == 1 ? "" : "s");
    return CLI_DONE;
}

const command cmd_runs = {.name = "runs",
                          .args = "",
                          .about = "List runs",
                          .text =
                              "Runs are folders that 'manta train --name' and trainers keep. A run that is "
                              "'ended' was killed, and has left no result. BEGAN is when a run was begun, "
                              "TOOK how long it was worked on since, over all take-ups by --resume; of one "
                              "that was killed, until its last line of metrics.",
                          .examples = "  manta runs\n  manta runs show mine",
                          .groups = {&listing},
                          .run = list_runs};

const command cmd_runs_show = {.name = "runs show",
                               .args = "NAME",
                               .about = "Show a run: settings, metrics, checkpoints, error",
                               .text = "NAME is that of a run, or a path to its folder.",
                               .min_args = 1,
                               .max_args = 1,
                               .groups = {&listing},
                               .run = show_run};

const command cmd_runs_compare = {.name = "runs compare",
                                  .args = "A B",
                                  .about = "Compare two runs: what was set differently, and what came of it",
                                  .text = "A and B are names of runs, or paths to their folders.",
                                  .min_args = 2,
                                  .max_args = 2,
                                  .groups = {&listing},
                                  .run = compare_runs};

const command cmd_logs = {.name = "logs",
                          .args = "NAME",
                          .about = "Show what the workers of a run have said",
                          .text =
                              "NAME is that of a run, or a path to its folder. What a worker prints, on "
                              "standard output or error, is in the run's log/rank-N.txt line by line, also "
                              "that of one that was killed and of the one in its place; between them "
                              "stands, with the time (UTC), when one was started and what "
                              "became of it. A log that has grown large is divided (manta train "
                              "--log-size): its parts come in their order, the oldest that is kept first. "
                              "Behind the ranks come parameter servers.",
                          .examples = "  manta logs mine --rank 1 -f",
                          .min_args = 1,
                          .max_args = 1,
                          .groups = {&logging},
                          .run = show_logs};
