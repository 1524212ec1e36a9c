/* profile.c - where the time of a step goes, as a table or as an event. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/profile.h"
#include "cli/print.h"

typedef struct rows {
    int n, cap;
    manta_profile_row *row;
} rows;

static void keep_row(void *user, const manta_profile_row *r)
{
    rows *all = user;

    if (all->n == all->cap) {
        all->cap = all->cap ? 2 * all->cap : 64;
        all->row = realloc(all->row, (size_t)all->cap * sizeof *all->row);
        if (!all->row) abort();
    }
    all->row[all->n++] = *r;
}

static void print_rate(double gflops)
{
    if (gflops > 0) {
        print_out("%8.1f", gflops);
    } else {
        print_out("%8s", "-");
    }
}

static void print_row(const manta_profile_row *r, int wide, double step_ms)
{
    char op[64];
    double ms = r->forward_ms + r->backward_ms;

    snprintf(op, sizeof op, "%s%s", r->op, r->relu ? "+relu" : "");
    print_out("%-*.*s  %-16.16s  %-20.20s %9.3f %9.3f %6.1f%% ", wide, wide, r->layer, op, r->shape,
              r->forward_ms, r->backward_ms, 100 * ms / step_ms);
    print_rate(r->forward_gflops);
    print_rate(r->backward_gflops);
    print_out("\n");
}

static void print_nodes(const rows *all, double nodes_ms, double data_ms, double step_ms)
{
    double forward = 0, backward = 0, rest = step_ms - nodes_ms - data_ms;
    int wide = 16;

    for (int i = 0; i < all->n; i++) {
        int n = (int)strlen(all->row[i].layer);
        forward += all->row[i].forward_ms;
        backward += all->row[i].backward_ms;
        if (n > wide) wide = n < 32 ? n : 32;
    }
    print_out("%-*s  %-16s  %-20s %9s %9s %7s %8s%8s\n", wide, "layer", "operation", "shape", "fwd ms",
              "bwd ms", "share", "GF/s fwd", "bwd");
    for (int i = 0; i < all->n; i++) print_row(&all->row[i], wide, step_ms);
    print_out("%-*s  %-16s  %-20s %9.3f %9.3f %6.1f%%\n", wide, "all nodes", "", "", forward, backward,
              100 * nodes_ms / step_ms);
    print_out("%-*s  %-16s  %-20s %19.3f %6.1f%%\n", wide, "waiting for data", "", "", data_ms,
              100 * data_ms / step_ms);
    print_out("%-*s  %-16s  %-20s %19.3f %6.1f%%\n", wide, "the rest", "update, loss", "", rest,
              100 * rest / step_ms);
    print_out("%-*s  %-16s  %-20s %19.3f\n", wide, "one step", "", "", step_ms);
}

/* ---- workers ---- */

/* Milliseconds of a step, by what a worker did in them. */
typedef struct kinds {
    double data, compute, update, wait, rest;
} kinds;

static double step_ms_of(const profile *p)
{
    return p->done ? p->seconds * 1e3 / (double)p->done : 0;
}

static kinds kinds_of(const profile *p, int rank)
{
    const manta_worker_work *a = &p->first[rank], *b = &p->last[rank];
    double scale = p->done ? 1e3 / (double)p->done : 0;
    kinds k = {.data = (b->data_seconds - a->data_seconds) * scale,
               .update = (b->update_seconds - a->update_seconds) * scale,
               .wait = (b->wait_seconds - a->wait_seconds) * scale};

    k.compute = (b->seconds - a->seconds) * scale - k.data - k.update;
    k.rest = step_ms_of(p) - k.data - k.compute - k.update - k.wait;
    if (k.rest < 0) k.rest = 0; /* a step after the last one that was told has been begun */
    return k;
}

static void print_kinds(const char *who, const kinds *k, double step_ms)
{
    print_out("%-8s %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %8.1f%%\n", who, k->data, k->compute, k->update,
              k->wait, k->rest, step_ms, 100 * k->data / step_ms);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static void print_workers(const profile *p)
{
    kinds mean = {0}, most = {0};
    double step_ms = step_ms_of(p), n = p->workers;
    char who[32];

    print_out("%-8s %9s %9s %9s %9s %9s %9s %9s\n", "ms", "data", "compute", "update", "others", "the rest",
              "one step", "of data");
    for (int i = 0; i < p->workers; i++) {
        kinds k = kinds_of(p, i);
        snprintf(who, sizeof who, "rank %d", i);
        print_kinds(who, &k, step_ms);
        mean = (kinds){mean.data + k.data / n, mean.compute + k.compute / n, mean.update + k.update / n,
                       mean.wait + k.wait / n, mean.rest + k.rest / n};
        most = (kinds){larger(most.data, k.data), larger(most.compute, k.compute),
                       larger(most.update, k.update), larger(most.wait, k.wait), larger(most.rest, k.rest)};
    }
    print_kinds("mean", &mean, step_ms);
    print_kinds("most", &most, step_ms);
    print_out(
        "\nOf %lld steps: data is the wait for samples to be read and decoded, others the wait for other\n"
        "workers. What a reader does while its worker computes is in neither.\n",
        (long long)p->done);
}

static json_t *workers_json(const profile *p)
{
    json_t *list = json_array();

    for (int i = 0; i < p->workers; i++) {
        kinds k = kinds_of(p, i);
        json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "rank", i, "data_ms",
                                              json_number(k.data), "compute_ms", json_number(k.compute),
                                              "update_ms", json_number(k.update), "others_ms",
                                              json_number(k.wait), "rest_ms", json_number(k.rest)));
    }
    return list;
}

/* ---- as an event ---- */

static json_t *nodes_json(const rows *all)
{
    json_t *list = json_array();

    for (int i = 0; i < all->n; i++) {
        const manta_profile_row *r = &all->row[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:b, s:o, s:o, s:o, s:o}", "layer", r->layer,
                                              "op", r->op, "shape", r->shape, "relu", r->relu, "forward_ms",
                                              json_number(r->forward_ms), "backward_ms",
                                              json_number(r->backward_ms), "forward_gflops",
                                              json_number(r->forward_gflops), "backward_gflops",
                                              json_number(r->backward_gflops)));
    }
    return list;
}

static void print_event(const profile *p, const rows *all, double step_ms)
{
    json_t *event = json_pack("{s:s, s:I, s:o, s:o}", "event", "profile", "steps", (json_int_t)p->done,
                              "ms_per_step", json_number(step_ms), "workers", workers_json(p));

    if (p->workers < 2) {
        json_object_set_new(event, "trace", json_string(p->trace));
        json_object_set_new(event, "nodes", nodes_json(all));
    }
    json_emit(event);
}

/* ---- the measurement ---- */

void profile_plan(const profile *p, manta_fit_options *fit)
{
    fit->epochs = fit->initial_epoch + 1;
    fit->steps_per_epoch = p->steps;
    if (p->workers < 2) {
        fit->steps_per_epoch += PROFILE_WARM_UP;
    } else {
        fit->epochs += (PROFILE_WARM_UP + p->steps - 1) / p->steps;
    }
}

static void look_at_ranks(const profile *p, const manta_session *s, manta_worker_work *to)
{
    for (int i = 0; i < p->workers; i++) {
        if (!manta_session_worker_work(s, i, &to[i])) to[i] = (manta_worker_work){0};
    }
}

static manta_status see_workers(profile *p, const manta_session *s, const manta_event *e)
{
    if (e->epoch + 1 < e->epochs) return MANTA_OK;
    if (e->kind == MANTA_EVENT_EPOCH_BEGIN) look_at_ranks(p, s, p->first);
    if (e->kind == MANTA_EVENT_STEP) {
        look_at_ranks(p, s, p->last);
        p->done = e->step;
        p->seconds = e->seconds;
    }
    return MANTA_OK;
}

manta_status profile_see(profile *p, manta_session *s, const manta_event *e)
{
    if (p->workers > 1) return see_workers(p, s, e);
    if (e->kind != MANTA_EVENT_STEP) return MANTA_OK;
    if (e->step == PROFILE_WARM_UP) {
        p->begin = e->seconds;
        look_at_ranks(p, s, p->first);
        return manta_session_profile(s, p->trace);
    }
    look_at_ranks(p, s, p->last);
    p->done = e->step > PROFILE_WARM_UP ? e->step - PROFILE_WARM_UP : 0;
    p->seconds = e->seconds - p->begin;
    return MANTA_OK;
}

static manta_status print_process(const profile *p, manta_session *s, int64_t batch, bool json)
{
    rows all = {0};
    double nodes_ms = 0, step_ms = step_ms_of(p), data_ms = kinds_of(p, 0).data;
    manta_status st = manta_session_profile_end(s, batch, keep_row, &all);

    for (int i = 0; i < all.n; i++) nodes_ms += all.row[i].forward_ms + all.row[i].backward_ms;
    if (step_ms < nodes_ms + data_ms) step_ms = nodes_ms + data_ms;
    if (json) {
        if (!st) print_event(p, &all, step_ms);
    } else {
        print_nodes(&all, nodes_ms, data_ms, step_ms);
        if (!st)
            print_out(
                "\nEvery call of %lld steps is in %s (open it in chrome://tracing or ui.perfetto.dev).\n",
                (long long)p->done, p->trace);
    }
    free(all.row);
    return st;
}

manta_status profile_print(profile *p, manta_session *s, int64_t batch, bool json)
{
    manta_status st = MANTA_OK;

    if (p->workers < 2) {
        st = print_process(p, s, batch, json);
    } else if (json) {
        print_event(p, NULL, step_ms_of(p));
    } else {
        print_workers(p);
    }
    cli_flush();
    return st;
}
