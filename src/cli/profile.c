/* profile.c - where the time of a step goes, as a table or as an event. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/profile.h"

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
        printf("%8.1f", gflops);
    } else {
        printf("%8s", "-");
    }
}

static void print_row(const manta_profile_row *r, int wide, double step_ms)
{
    char op[64];
    double ms = r->forward_ms + r->backward_ms;

    snprintf(op, sizeof op, "%s%s", r->op, r->relu ? "+relu" : "");
    printf("%-*.*s  %-16.16s  %-20.20s %9.3f %9.3f %6.1f%% ", wide, wide, r->layer, op, r->shape,
           r->forward_ms, r->backward_ms, 100 * ms / step_ms);
    print_rate(r->forward_gflops);
    print_rate(r->backward_gflops);
    fputs("\n", stdout);
}

static void print_table(const rows *all, double nodes_ms, double step_ms)
{
    double forward = 0, backward = 0;
    int wide = 16;

    for (int i = 0; i < all->n; i++) {
        int n = (int)strlen(all->row[i].layer);
        forward += all->row[i].forward_ms;
        backward += all->row[i].backward_ms;
        if (n > wide) wide = n < 32 ? n : 32;
    }
    printf("%-*s  %-16s  %-20s %9s %9s %7s %8s%8s\n", wide, "layer", "operation", "shape", "fwd ms", "bwd ms",
           "share", "GF/s fwd", "bwd");
    for (int i = 0; i < all->n; i++) print_row(&all->row[i], wide, step_ms);
    printf("%-*s  %-16s  %-20s %9.3f %9.3f %6.1f%%\n", wide, "all nodes", "", "", forward, backward,
           100 * nodes_ms / step_ms);
    printf("%-*s  %-16s  %-20s %19.3f %6.1f%%\n", wide, "the rest", "update, data", "", step_ms - nodes_ms,
           100 * (step_ms - nodes_ms) / step_ms);
    printf("%-*s  %-16s  %-20s %19.3f\n", wide, "one step", "", "", step_ms);
}

static void print_event(const rows *all, int64_t steps, double step_ms, const char *trace)
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
    json_emit(json_pack("{s:s, s:I, s:o, s:s, s:o}", "event", "profile", "steps", (json_int_t)steps,
                        "ms_per_step", json_number(step_ms), "trace", trace, "nodes", list));
}

manta_status profile_print(manta_session *s, int64_t batch, int64_t steps, double step_ms, const char *trace,
                           bool json)
{
    rows all = {0};
    double nodes_ms = 0;
    manta_status st = manta_session_profile_end(s, batch, keep_row, &all);

    for (int i = 0; i < all.n; i++) nodes_ms += all.row[i].forward_ms + all.row[i].backward_ms;
    if (step_ms < nodes_ms) step_ms = nodes_ms;
    if (json) {
        if (!st) print_event(&all, steps, step_ms, trace);
    } else {
        print_table(&all, nodes_ms, step_ms);
        if (!st)
            printf("\nEvery call of %lld steps is in %s (open it in chrome://tracing or ui.perfetto.dev).\n",
                   (long long)steps, trace);
    }
    cli_flush();
    free(all.row);
    return st;
}
