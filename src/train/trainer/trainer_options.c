/* trainer_options.c - what a program asks of a trainer: whether it can be, and how it is
 * written down in the run's folder. */
#include <jansson.h>
#include <stdlib.h>

#include <manta/context.h>
#include <manta/task.h>

#include "base/mem.h"
#include "train/checkpoint/checkpoints.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/retention.h"
#include "train/run/run_folder.h"
#include "train/trainer/trainer_driver.h"

manta_status driver_check_options(trainer_driver *d)
{
    const manta_trainer_options *o = d->o;
    manta_context here;

    TRY(functions_name(FUNCTION_LOOP, "the trainer's loop", o->loop_name, (any_function *)o->loop, d->loop));
    if (!manta_is_initialized()) return manta_fail(MANTA_EINVAL, "call manta_init() before a trainer's fit");
    TRY(manta_context_get(NULL, &here));
    if (here.in_process)
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "a trainer needs processes for its workers, and this node is in-process: it has none");
    if (o->run.failure.max_failures < MANTA_UNLIMITED)
        return manta_fail(MANTA_EINVAL, "max_failures: %d, expected 1 or more, MANTA_NONE or MANTA_UNLIMITED",
                          o->run.failure.max_failures);
    TRY(checkpoints_check(&o->run.checkpoints));
    TRY(datasets_init(&d->datasets, o->n_datasets, o->datasets));
    return scaling_init(&d->scaling, &o->scaling);
}

static json_t *logging_json(const manta_logging_config *c)
{
    static const char *const to[] = {"file", "output", "both"};
    json_t *o = json_pack("{s:s?, s:b, s:I, s:i}", "level", c->level, "stamp", c->stamp, "max_size",
                          (json_int_t)c->max_size, "parts", c->parts);

    if (c->to >= MANTA_LOG_TO_FILE && c->to <= MANTA_LOG_TO_BOTH)
        json_object_set_new(o, "to", json_string(to[c->to]));
    return o;
}

char *driver_config_text(const trainer_driver *d)
{
    const manta_trainer_options *o = d->o;
    const manta_checkpoints_options *c = &o->run.checkpoints;
    json_t *datasets = json_array();
    json_t *all = json_pack(
        "{s:i, s:i, s:i, s:f, s:s?, s:i, s:I, s:i, s:s?, s:s?, s:s?}", "workers", d->scaling.most,
        "min_workers", d->scaling.least, "threads_per_worker", o->scaling.threads_per_worker,
        "cpus_per_worker", d->scaling.need.num_cpus, "resources_per_worker", o->scaling.resources_per_worker,
        "max_failures", driver_most_failures(d), "seed", (json_int_t)o->seed, "keep", c->keep, "keep_best",
        c->score, "keep_order", c->order, "resume_from_checkpoint", o->resume_from_checkpoint);
    char *text;
    bool bad;

    for (int i = 0; i < o->n_datasets; i++)
        json_array_append_new(datasets, json_string(o->datasets[i].name ? o->datasets[i].name : ""));
    bad = !all || json_array_size(datasets) < (size_t)o->n_datasets ||
          json_object_set(all, "datasets", datasets) ||
          json_object_set_new(all, "logging", logging_json(&o->run.logging));
    text = bad ? NULL : json_dumps(all, JSON_INDENT(1));
    json_decref(datasets);
    json_decref(all);
    return text;
}

manta_status driver_check_kind(const manta_run_config *r)
{
    char *folder, *text = NULL;
    json_t *config;
    bool other;

    if (!r->resume || !r->name) return MANTA_OK;
    folder = run_inner(r->storage ? r->storage : manta_run_storage(), r->name);
    config = manta_run_read_config(folder, &text) ? NULL : json_loads(text, 0, NULL);
    other = json_object_get(config, "model") && !json_object_get(config, "datasets");
    json_decref(config);
    free(text);
    mem_free(folder);
    if (!other) return MANTA_OK;
    return manta_fail(
        MANTA_EINVAL,
        "run '%s' was begun by 'manta train', not by a trainer: 'manta train --resume %s' goes on "
        "with it, or choose another name",
        r->name, r->name);
}
