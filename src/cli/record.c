/* record.c - what a training leaves behind and goes on from. */
#include "cli/record.h"

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
        SETTING("name"),
        SETTING("storage"),
        SETTING("run-dir"),
        {"resume", OPTION_MAYBE, "NAME",
         "Go on with the run of this name (or this folder, when there is a / in it) from its last "
         "checkpoint, "
         "with the options it was begun with, to the same bytes as if it had never stopped. Without NAME the "
         "run is that of --name, --run-dir or --backup-dir, and begins when there is none"},
        SETTING("checkpoint-every"),
        SETTING("keep"),
        SETTING("keep-best"),
        {"backup-dir", OPTION_TEXT, "DIR",
         "Go on from a backup in this folder when there is one, back up every epoch (or --checkpoint-every), "
         "and "
         "remove it when training ends well"},
        SETTING("early-stop"),
        SETTING("reduce-lr"),
        SETTING("log-level"),
        SETTING("log-to"),
        SETTING("log-stamp"),
        SETTING("log-size"),
        SETTING("csv-log"),
        SETTING("tensorboard"),
        SETTING("save-best"),
        SETTING("terminate-on-nan"),
        {0}}};

void record_read(record *r, const options *o, manta_recipe *recipe)
{
    manta_log_level level;

    (void)work_done(recipe, manta_recipe_run_options(recipe, &r->ro, &r->pace));
    r->ro.resume = options_flag(o, "resume");
    r->backup = options_text(o, "backup-dir");
    r->wants_run = r->ro.name || r->ro.folder || r->ro.storage || options_text(o, "keep") ||
                   options_text(o, "keep-best") || (options_text(o, "checkpoint-every") && !r->backup);
    /* A training without a folder logs too. */
    if (r->ro.logging.level && !manta_log_level_named(r->ro.logging.level, &level))
        manta_log_set_level(level);
    if (!r->wants_run && (options_text(o, "log-to") || r->ro.logging.stamp || r->ro.logging.max_size))
        cli_usage("--log-to, --log-stamp and --log-size are about a run's logs: give it a --name too");
}

void record_check_metrics(manta_recipe *recipe, const manta_session *s, bool validated)
{
    (void)work_done(recipe, manta_recipe_check_metrics(recipe, s, validated));
}

static void add_callback(record *r, manta_callback *c)
{
    if (r->n == RECORD_CALLBACKS) abort();
    r->callbacks[r->n++] = c;
}

static manta_status add_callbacks(record *r, const options *o, manta_recipe *recipe, const char *precision)
{
    bool validated = options_text(o, "validation") || options_text(o, "validation-split");
    manta_callback *const *made;
    manta_status st = work_done(recipe, manta_recipe_callbacks(recipe, validated, &r->borrowed, &made));

    if (st) return st;
    for (int i = 0; i < r->borrowed; i++) add_callback(r, made[i]);
    if (r->backup) {
        char *config = options_json(o, precision);
        add_callback(
            r, manta_backup_and_restore(
                   r->backup, &(manta_backup_options){.every_steps = r->pace.every_steps, .config = config}));
        free(config);
    }
    return MANTA_OK;
}

/* What the run is computed in, where neither the options say it nor are they for processors alone: it depends on
 * the machine then, and a run that is taken up elsewhere stays in it. */
static const char *precision_to_keep(const options *o, const manta_session *s)
{
    const char *device = options_text(o, "device");

    if (options_text(o, "precision") || !device || !*device || !strcmp(device, "cpu")) return NULL;
    return manta_session_precision(s);
}

manta_status record_open(record *r, const options *o, manta_recipe *recipe, const manta_session *s,
                         const char *model)
{
    char *config, stem[128];
    const char *base = strrchr(model, '/'), *precision = precision_to_keep(o, s);
    manta_status st;

    if ((st = add_callbacks(r, o, recipe, precision))) return st;
    if (!r->wants_run) return MANTA_OK;
    snprintf(stem, sizeof stem, "%s", base ? base + 1 : model);
    stem[strcspn(stem, ".")] = '\0';
    config = options_json(o, precision);
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
