/* training_events.c - what happens in a training: shown, and kept with the run. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/deaths.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/scale.h"
#include "cli/stop.h"
#include "cli/training.h"

static bool emit_epoch(const training *r, const manta_event *e)
{
    json_t *event = json_pack("{s:s, s:I}", "event", "epoch", "epoch", (json_int_t)e->epoch + 1);

    json_add_metrics(event, e->metrics);
    json_object_set_new(event, "images_per_s", json_number(e->samples_per_s));
    json_object_set_new(event, "seconds", json_number(e->seconds));
    json_object_set_new(event, "steps", json_integer(e->step));
    if (r->rates.wanted) json_object_set_new(event, "ranks", rates_json(&r->rates));
    return json_emit(event);
}

/* A worker was started, its death has been made up for, or it has left. */
static bool emit_worker(const manta_event *e)
{
    const char *name = e->kind == MANTA_EVENT_RECOVERED     ? "recovered"
                       : e->kind == MANTA_EVENT_WORKER_LEFT ? "left"
                                                            : "worker";
    json_t *event = json_pack("{s:s, s:i, s:I}", "event", name, "rank", e->rank, "pid", (json_int_t)e->pid);

    if (e->kind == MANTA_EVENT_RECOVERED) json_object_set_new(event, "ms", json_number(e->ms));
    if (e->server) json_object_set_new(event, "role", json_string("server"));
    if (e->cause) {
        json_object_set_new(event, "epoch", json_integer(e->epoch + 1));
        json_object_set_new(event, "step", json_integer(e->step + 1));
        json_object_set_new(event, "cause", json_string(e->cause));
    }
    return json_emit(event);
}

/* What signals have asked for; beyond the range it stays as it is. */
static void resize_workers(manta_session *s)
{
    int change = scale_take();

    if (change && manta_session_resize(s, manta_session_workers(s) + change))
        cli_note("the number of workers stays: %s", manta_error_text());
}

/* What happened to a worker or a server, in its log. */
static void log_worker(training *r, const manta_event *e)
{
    char line[240];

    if (!r->record.run) return;
    if (e->kind == MANTA_EVENT_WORKER) {
        snprintf(line, sizeof line, "started as process %lld", (long long)e->pid);
    } else if (e->kind == MANTA_EVENT_WORKER_LEFT) {
        snprintf(line, sizeof line, "process %lld left: %s, in epoch %lld at step %lld", (long long)e->pid,
                 e->cause, (long long)e->epoch + 1, (long long)e->step + 1);
    } else if (e->server && !e->pid) { /* of another host */
        snprintf(line, sizeof line, "lost: %s; another took its place, in epoch %lld at step %lld", e->cause,
                 (long long)e->epoch + 1, (long long)e->step + 1);
    } else if (e->server) {
        snprintf(line, sizeof line, "process %lld %s; another took its place, in epoch %lld at step %lld",
                 (long long)e->pid, e->cause, (long long)e->epoch + 1, (long long)e->step + 1);
    } else {
        death_line(e, line, sizeof line);
    }
    if (e->server) {
        manta_run_log_server(r->record.run, e->rank, line);
    } else {
        manta_run_log(r->record.run, e->rank, line);
    }
}

/* Others of the cluster are waited for: said after a second, and then less and
 * less often. */
static void say_waiting(training *r, const manta_event *e)
{
    if (e->ms < r->waited_ms || r->say_ms == 0) r->say_ms = 1000;
    r->waited_ms = e->ms;
    if (e->ms < r->say_ms) return;
    r->say_ms = 2 * e->ms;
    if (!r->json) {
        progress_break(&r->progress);
        cli_note("%s", e->cause);
    } else if (!json_emit(json_pack("{s:s, s:i, s:f, s:s}", "event", "waiting", "rank", e->rank, "ms", e->ms,
                                    "cause", e->cause))) {
        stop_unread();
    }
}

/* The bar, with the rates of the ranks where they are wanted. */
static void show_progress(training *r, const manta_event *e)
{
    char note[200];

    r->progress.note = rates_note(&r->rates, note, sizeof note);
    progress_show(&r->progress, e);
    r->progress.note = NULL;
    if (e->kind == MANTA_EVENT_EPOCH_END) rates_print(&r->rates);
}

bool training_event(void *user, manta_session *s, const manta_event *e)
{
    training *r = user;
    bool step = e->kind == MANTA_EVENT_STEP;
    bool worker = e->kind == MANTA_EVENT_WORKER || e->kind == MANTA_EVENT_RECOVERED ||
                  e->kind == MANTA_EVENT_WORKER_LEFT;

    if ((step || e->kind == MANTA_EVENT_EPOCH_END) && e->metrics) r->last = *e->metrics;
    if (step) resize_workers(s);
    rates_see(&r->rates, s, e, r->so.workers);
    if (e->stopped) snprintf(r->why, sizeof r->why, "%s", e->stopped);
    if (worker) {
        log_worker(r, e);
        if (e->kind != MANTA_EVENT_WORKER) progress_break(&r->progress); /* the block stands alone */
        failures_see(&r->failures, e);
    }
    if (stop_is_unread()) return false;
    if (e->kind == MANTA_EVENT_WAITING) {
        say_waiting(r, e);
    } else if (r->profile.steps) {
        if (profile_see(&r->profile, s, e)) return false;
    } else if (!r->json) {
        show_progress(r, e);
        if (!cli_flush()) stop_unread();
    } else if ((e->kind == MANTA_EVENT_EPOCH_END && !emit_epoch(r, e)) || (worker && !emit_worker(e))) {
        stop_unread();
    }
    return !stop_requested();
}

/* ---- the beginning ---- */

/* "mnist-cnn: 692,138 parameters; mnist: 60,000 samples; 2 threads, avx512" */
static void introduce_training(training *r)
{
    char params[32], frozen[64] = "", samples[64] = "samples", number[32];
    const manta_model *m = manta_recipe_model(r->recipe);
    int64_t all = manta_model_params(m, false), trained = manta_model_params(m, true);
    int64_t count = manta_dataset_count(r->data);
    bool some = options_text(r->o, "freeze") != NULL;

    if (r->json) {
        if (r->so.workers < 2)
            emit_worker(&(manta_event){.kind = MANTA_EVENT_WORKER,
                                       .rank = manta_cluster_rank(r->cluster),
                                       .pid = getpid()}); /* this one */
        return;
    }
    if (some) snprintf(frozen, sizeof frozen, " (%s trained)", work_number(trained, number, sizeof number));
    if (count >= 0)
        snprintf(samples, sizeof samples, "%s sample%s", work_number(count, number, sizeof number),
                 count == 1 ? "" : "s");
    progress_bold(&r->progress, manta_model_name(m));
    print_out(": %s parameters%s; %s: %s; %s\n", work_number(all, params, sizeof params), frozen,
              options_text(r->o, "data"), samples, manta_session_about(r->s));
    if (!cli_flush()) stop_unread();
}

/* Says what the run goes on from, and what it could not use. */
static void tell_start(training *r)
{
    const manta_checkpoint_info *i = record_start(&r->record);
    const char *path = record_start_path(&r->record), *damage = record_damage(&r->record);
    char place[64];
    json_t *event;

    if (damage) cli_note("%s; the one before it is used", damage);
    if (!r->json && r->record.run && r->record.ro.folder) { /* its name is the end of the path */
        print_out("Run in %s\n", manta_run_path(r->record.run));
    } else if (!r->json && r->record.run) {
        print_out("Run %s in %s\n", manta_run_name(r->record.run), manta_run_path(r->record.run));
    }
    if (!i) return;
    if (!r->json) {
        print_out("Resuming from %s: %s\n", path, record_place(i, place, sizeof place));
        if (i->epoch >= r->fit.epochs) print_out("Nothing is left to do; more --epochs would go on\n");
        return;
    }
    event = json_pack("{s:s, s:s, s:I, s:I}", "event", "resumed", "checkpoint", path, "epoch",
                      (json_int_t)i->epoch + 1, "step", (json_int_t)i->step);
    if (damage) json_object_set_new(event, "damaged", json_string(damage));
    if (!json_emit(event)) stop_unread();
}

void training_introduce(training *r)
{
    introduce_training(r);
    tell_start(r);
}
