/* record.c - what a training leaves behind and goes on from. */
#include "cli/record.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/log.h>
#include <manta/tool_text.h>

#include "cli/cli.h"
#include "cli/work.h"

const option_group record_options = {
    "Run, checkpoints, callbacks:",
    (const cli_option[]){
        {"name", OPTION_TEXT, "NAME",
         "Keep the run in a folder of this name: configuration, metrics, events, logs, checkpoints, result"},
        {"storage", OPTION_TEXT, "DIR",
         "Where such folders lie; $MANTA_STORAGE or ~/manta-runs when not given. Without --name the run is "
         "called "
         "after its model and numbered"},
        {"run-dir", OPTION_TEXT, "DIR", "The folder of the run itself, instead of --storage and --name"},
        {"resume", OPTION_MAYBE, "NAME",
         "Go on with the run of this name (or this folder, when there is a / in it) from its last "
         "checkpoint, "
         "with the options it was begun with, to the same bytes as if it had never stopped. Without NAME the "
         "run is that of --name, --run-dir or --backup-dir, and begins when there is none"},
        {"checkpoint-every", OPTION_TEXT, "N",
         "Save a checkpoint every so often: 20steps, 1epoch; every epoch when not given. Training does not "
         "wait "
         "for it"},
        {"keep", OPTION_COUNT, "N", "Keep so many checkpoints; 2 when not given"},
        {"keep-best", OPTION_TEXT, "METRIC",
         "Keep those best by this metric (accuracy, val_loss, ...), and the latest"},
        {"backup-dir", OPTION_TEXT, "DIR",
         "Go on from a backup in this folder when there is one, back up every epoch (or --checkpoint-every), "
         "and "
         "remove it when training ends well"},
        SETTING("early-stop"),
        SETTING("reduce-lr"),
        {"log-level", OPTION_TEXT, "LEVEL",
         "What is logged, by this process and the workers: debug, info, warn, error or off; as $MANTA_LOG "
         "says when not given"},
        {"log-to", OPTION_TEXT, "PLACE",
         "Where what the workers of a run print goes: file (log/rank-N.txt of the run), output (standard "
         "error, behind the rank) or both; file when not given"},
        {"log-stamp", OPTION_FLAG, NULL, "Put the time and the rank before every line that they print"},
        {"log-size", OPTION_TEXT, "SIZE",
         "Keep so much of what each of them prints, as 500k, 64M or 2G; 'all' for no bound; 64M when not "
         "given. Older lines go, and the log says so"},
        SETTING("csv-log"),
        SETTING("tensorboard"),
        SETTING("save-best"),
        SETTING("terminate-on-nan"),
        {0}}};

/* 20steps, 20 (steps), 1epoch, 2epochs. */
static void read_pace(const char *text, manta_checkpointing_options *pace)
{
    char *end;
    long long n;

    if (!text) return;
    n = strtoll(text, &end, 10);
    if (end == text || n < 1) cli_usage("--checkpoint-every: '%s', expected such as 20steps or 1epoch", text);
    if (!*end || !strcmp(end, "steps") || !strcmp(end, "step")) {
        pace->every_steps = n;
    } else if (!strcmp(end, "epoch") || !strcmp(end, "epochs")) {
        pace->every_epochs = n;
    } else {
        cli_usage("--checkpoint-every: '%s', expected such as 20steps or 1epoch", text);
    }
}

/* 500k, 64M, 2G, 1000 (bytes), all. */
static int64_t read_size(const char *text)
{
    static const char units[] = "kMG";
    const char *unit;
    char *end;
    long long n;

    if (!text) return 0;
    if (!strcmp(text, "all")) return MANTA_NONE;
    errno = 0;
    n = strtoll(text, &end, 10);
    unit = *end ? strchr(units, *end) : NULL;
    if (end == text || errno || n < 1 || n > INT64_C(1) << 30 || (*end && (!unit || end[1])))
        cli_usage("--log-size: '%s', expected such as 500k, 64M or all", text);
    return n << (unit ? 10 * (unit - units + 1) : 0);
}

static void read_level(const char *text)
{
    static const char *const levels[] = {"debug", "info", "warn", "error", "off"};

    if (!text) return;
    for (int i = 0; i < 5; i++) {
        if (strcmp(text, levels[i]) != 0) continue;
        manta_log_set_level((manta_log_level)i);
        return;
    }
    cli_usage("--log-level: '%s', expected debug, info, warn, error or off", text);
}

static manta_log_to read_place(const char *text)
{
    static const char *const places[] = {"file", "output", "both"};

    for (int i = 0; text && i < 3; i++)
        if (!strcmp(text, places[i])) return (manta_log_to)i;
    if (text) cli_usage("--log-to: '%s', expected file, output or both", text);
    return MANTA_LOG_TO_FILE;
}

static void read_logging(const options *o, manta_logging_config *c)
{
    *c = (manta_logging_config){.level = options_text(o, "log-level"),
                                .to = read_place(options_text(o, "log-to")),
                                .stamp = options_flag(o, "log-stamp"),
                                .max_size = read_size(options_text(o, "log-size"))};
    read_level(c->level); /* a training without a folder logs too */
}

void record_read(record *r, const options *o)
{
    const char *name = options_text(o, "name"), *folder = options_text(o, "run-dir");
    const char *storage = options_text(o, "storage");
    bool resume = options_flag(o, "resume");

    read_pace(options_text(o, "checkpoint-every"), &r->pace);
    r->backup = options_text(o, "backup-dir");
    if (folder && (name || storage))
        cli_usage("--run-dir is the folder itself: leave --name and --storage out");
    r->wants_run = name || folder || storage || options_text(o, "keep") || options_text(o, "keep-best") ||
                   (options_text(o, "checkpoint-every") && !r->backup);
    r->ro = (manta_run_options){
        .folder = folder,
        .storage = storage,
        .name = name,
        .resume = resume,
        .checkpoints = {.keep = (int)options_int(o, "keep", 2), .score = options_text(o, "keep-best")}};
    read_logging(o, &r->ro.logging);
    if (!r->wants_run && (options_text(o, "log-to") || r->ro.logging.stamp || r->ro.logging.max_size))
        cli_usage("--log-to, --log-stamp and --log-size are about a run's logs: give it a --name too");
}

void record_check_metrics(const options *o, manta_recipe *recipe, const manta_session *s, bool validated)
{
    const char *best = options_text(o, "keep-best");
    manta_status st = best ? manta_recipe_check_metric(recipe, s, validated, "keep-best", best) : MANTA_OK;

    if (!st) st = manta_recipe_check_metrics(recipe, s, validated);
    (void)work_done(recipe, st);
}

static void add_callback(record *r, manta_callback *c)
{
    if (r->n == RECORD_CALLBACKS) abort();
    r->callbacks[r->n++] = c;
}

static manta_status add_callbacks(record *r, const options *o, manta_recipe *recipe)
{
    bool validated = options_text(o, "validation") || options_text(o, "validation-split");
    manta_callback *const *made;
    manta_status st = work_done(recipe, manta_recipe_callbacks(recipe, validated, &r->borrowed, &made));

    if (st) return st;
    for (int i = 0; i < r->borrowed; i++) add_callback(r, made[i]);
    if (r->backup) {
        char *config = options_json(o);
        add_callback(
            r, manta_backup_and_restore(
                   r->backup, &(manta_backup_options){.every_steps = r->pace.every_steps, .config = config}));
        free(config);
    }
    return MANTA_OK;
}

manta_status record_open(record *r, const options *o, manta_recipe *recipe, const char *model)
{
    char *config, stem[128];
    const char *base = strrchr(model, '/');
    manta_status st;

    if ((st = add_callbacks(r, o, recipe))) return st;
    if (!r->wants_run) return MANTA_OK;
    snprintf(stem, sizeof stem, "%s", base ? base + 1 : model);
    stem[strcspn(stem, ".")] = '\0';
    config = options_json(o);
    r->ro.config = config;
    r->ro.stem = *stem ? stem : NULL;
    st = manta_run_open(&r->ro, &r->run);
    free(config);
    if (st) return st;
    add_callback(r, manta_run_recorder(r->run, &r->pace));
    return MANTA_OK;
}

void record_close(record *r)
{
    for (int i = r->borrowed; i < r->n; i++) manta_callback_free(r->callbacks[i]);
    manta_run_close(r->run);
}

bool record_is_resumable(const record *r)
{
    return r->run || r->backup;
}

const char *record_word(const record *r, char *buf, size_t size)
{
    const char *path = manta_run_path(r->run);
    char dotted[1400];

    if (!r->ro.folder && !r->ro.storage) return manta_shell_word(manta_run_name(r->run), buf, size);
    snprintf(dotted, sizeof dotted, "%s%s", strchr(path, '/') ? "" : "./", path);
    return manta_shell_word(dotted, buf, size);
}

const char *record_command(const record *r, char *buf, size_t size)
{
    char word[1400];

    *buf = '\0';
    if (r->run) {
        snprintf(buf, size, "manta train --resume %s", record_word(r, word, sizeof word));
    } else if (r->backup) {
        snprintf(buf, size, "manta train --resume --backup-dir %s",
                 manta_shell_word(r->backup, word, sizeof word));
    }
    return buf;
}

manta_status record_finish(record *r, const char *status, const manta_metrics *last, const char *error)
{
    return r->run ? manta_run_finish(r->run, status, last, error) : MANTA_OK;
}

const manta_checkpoint_info *record_start(const record *r)
{
    const manta_checkpoint *c = r->run ? manta_run_start(r->run) : NULL;

    return c ? manta_checkpoint_get(c) : NULL;
}

const char *record_start_path(const record *r)
{
    const manta_checkpoint *c = r->run ? manta_run_start(r->run) : NULL;

    return c ? manta_checkpoint_path(c) : NULL;
}

const char *record_damage(const record *r)
{
    return r->run ? manta_run_damage(r->run) : NULL;
}

const char *record_checkpoint(const record *r)
{
    manta_checkpoints *all = r->run ? manta_run_checkpoints(r->run) : NULL;
    const char *path = NULL;

    if (all) (void)manta_checkpoints_at(all, manta_checkpoints_count(all) - 1, &path, NULL);
    return path;
}

const char *record_place(const manta_checkpoint_info *i, char *buf, size_t size)
{
    if (i->step) {
        snprintf(buf, size, "epoch %lld, after step %lld", (long long)i->epoch + 1, (long long)i->step);
    } else {
        snprintf(buf, size, "after epoch %lld", (long long)i->epoch);
    }
    return buf;
}
