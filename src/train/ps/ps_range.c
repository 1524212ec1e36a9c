/* ps_range.c - the range of a model that one parameter server has, as bytes.
 *
 *   weights   | parameters lo..hi | statistics* |                             S to W
 *   slot      | sums | gradients lo..hi | proposed statistics* |              W to S
 *   state     | run section | weights | each optimizer array lo..hi |
 *             | average lo..hi, if any | accumulator lo..hi, if any |         S to C, C to S
 *                                                        * of the first server alone
 *
 * lo and hi are blocks of the parameters' grid (nn/layout.h), so ranges of all servers
 * together are the whole, without gap or overlap. One function per message walks its pieces
 * (move_weights(), move_slot(), move_state()), whichever way the bytes go: the two
 * directions cannot disagree about the order. Sizes follow from the model, which is the same
 * on both sides (ps_config_check.h); whoever receives compares the length first. */
#include "train/ps/ps_range.h"

#include <string.h>

ps_range ps_range_of(const layout *l, int server, int servers)
{
    return (ps_range){.l = l,
                      .lo = l->param_blocks * server / servers,
                      .hi = l->param_blocks * (server + 1) / servers,
                      .first = server == 0};
}

static size_t range_size(const ps_range *p)
{
    return (size_t)(p->hi - p->lo) * LAYOUT_BLOCK * sizeof(float);
}

static size_t stats_size(const ps_range *p)
{
    return p->first ? (size_t)p->l->stats_size * sizeof(float) : 0;
}

/* A piece of memory that is copied one way or the other. */
typedef struct mover {
    char *bytes; /* packed */
    size_t at;
    bool pack;
} mover;

static void move_bytes(mover *m, void *memory, size_t n)
{
    if (m->pack) {
        memcpy(m->bytes + m->at, memory, n);
    } else {
        memcpy(memory, m->bytes + m->at, n);
    }
    m->at += n;
}

/* These blocks of a section that is as large as the parameters. */
static void move_range(const ps_range *p, mover *m, void *state, size_t section)
{
    move_bytes(m, (char *)state + section + (size_t)p->lo * LAYOUT_BLOCK * sizeof(float), range_size(p));
}

static void move_weights(const ps_range *p, mover *m, void *state)
{
    move_range(p, m, state, p->l->off_params);
    move_bytes(m, layout_stats(p->l, state), stats_size(p));
}

static void move_slot(const ps_range *p, mover *m, void *slot)
{
    move_bytes(m, layout_slot_sums(p->l, slot), (size_t)p->l->n_sums * sizeof(double));
    move_range(p, m, slot, 0);
    move_bytes(m, layout_slot_stats(p->l, slot), stats_size(p));
}

static void move_state(const ps_range *p, mover *m, void *state)
{
    const layout *l = p->l;

    move_bytes(m, layout_run(l, state), l->run_size);
    move_weights(p, m, state);
    for (int i = 0; i < l->arrays.n; i++) move_range(p, m, state, l->off_array[i]);
    if (l->arrays.average) move_range(p, m, state, l->off_average);
    if (l->arrays.accumulator) move_range(p, m, state, l->off_accumulator);
}

static void *drop_const(const void *memory)
{
    return (void *)(uintptr_t)memory; /* a packing mover only reads */
}

size_t ps_range_weights_size(const ps_range *p)
{
    return range_size(p) + stats_size(p);
}

void ps_range_get_weights(const ps_range *p, const void *state, char *out)
{
    move_weights(p, &(mover){.bytes = out, .pack = true}, drop_const(state));
}

void ps_range_set_weights(const ps_range *p, void *state, const char *in)
{
    move_weights(p, &(mover){.bytes = drop_const(in)}, state);
}

size_t ps_range_slot_size(const ps_range *p)
{
    return (size_t)p->l->n_sums * sizeof(double) + range_size(p) + stats_size(p);
}

void ps_range_get_slot(const ps_range *p, const void *slot, char *out)
{
    move_slot(p, &(mover){.bytes = out, .pack = true}, drop_const(slot));
}

void ps_range_set_slot(const ps_range *p, void *slot, const char *in)
{
    move_slot(p, &(mover){.bytes = drop_const(in)}, slot);
}

size_t ps_range_state_size(const ps_range *p)
{
    const layout *l = p->l;
    size_t ranges = 1 + (size_t)l->arrays.n + l->arrays.average + l->arrays.accumulator;

    return l->run_size + stats_size(p) + ranges * range_size(p);
}

void ps_range_get_state(const ps_range *p, const void *state, char *out)
{
    move_state(p, &(mover){.bytes = out, .pack = true}, drop_const(state));
}

void ps_range_set_state(const ps_range *p, void *state, const char *in)
{
    move_state(p, &(mover){.bytes = drop_const(in)}, state);
}
