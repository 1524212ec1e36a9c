/* ps_link.c - one conversation of the parameter servers. */
#include "train/ps/ps_link.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { LOOK_UP_MS = 500 };

manta_status ps_link_open(ps_link *l, chan *c, size_t room)
{
    manta_status st;

    *l = (ps_link){.c = c, .room = room};
    st = mem_try_array((int64_t)room, 1, "a message", (void **)&l->in);
    if (!st) st = mem_try_array((int64_t)room, 1, "a message", (void **)&l->out);
    if (st) ps_link_close(l);
    return st;
}

void ps_link_close(ps_link *l)
{
    chan_close(l->c);
    mem_try_free(l->in);
    mem_try_free(l->out);
    *l = (ps_link){.c = NULL};
}

manta_status ps_link_receive(ps_link *l, bool *whole)
{
    manta_status st;

    *whole = false;
    if (!l->coming) {
        st = chan_peek(l->c, &l->head);
        if (st == MANTA_EBUSY) return MANTA_OK;
        TRY(st);
        if (l->head.length > l->room) {
            return manta_fail(MANTA_ECORRUPT, "%s: a message of %llu bytes, expected at most %zu",
                              chan_name(l->c), (unsigned long long)l->head.length, l->room);
        }
        l->coming = true;
        l->got = 0;
    }
    for (;;) {
        size_t left = (size_t)l->head.length - l->got, n;
        TRY(chan_take(l->c, l->in + l->got, left, &n));
        l->got += n;
        if (l->got == l->head.length) break;
        if (!n) return MANTA_OK;
    }
    l->coming = false;
    *whole = true;
    return MANTA_OK;
}

manta_status ps_link_listen(ps_link *l, manta_status (*hear)(void *ctx, ps_link *l), void *ctx)
{
    for (;;) {
        bool whole;
        TRY(ps_link_receive(l, &whole));
        if (!whole) return MANTA_OK;
        TRY(hear(ctx, l));
    }
}

manta_status ps_link_send(ps_link *l, ps_kind kind, int64_t step, uint32_t item, size_t n)
{
    frame f = {.kind = (uint16_t)kind, .step = (uint64_t)step, .item = item, .length = n};

    if (chan_unsent(l->c))
        return manta_fail(MANTA_EINTERNAL, "%s: a message was to be sent before the one before it had gone",
                          chan_name(l->c));
    TRY(chan_post(l->c, &f, &(chan_part){l->out, n}, 1, true));
    return chan_work(l->c);
}

manta_status ps_link_ask(ps_link *l, ps_kind kind, int64_t step, size_t n, ps_kind want,
                         bool (*alone)(void *ctx), void *ctx)
{
    TRY(ps_link_send(l, kind, step, 0, n));
    for (;;) {
        chan_item item = {.c = l->c, .read = true};
        bool whole;
        manta_status st = chan_wait(&item, 1, NULL, 0, clock_deadline(LOOK_UP_MS));
        if (st && st != MANTA_ETIMEDOUT) return st;
        TRY(ps_link_receive(l, &whole));
        if (whole && l->head.kind == want) return MANTA_OK;
        if (whole) {
            return manta_fail(MANTA_ECORRUPT, "%s: a message of kind %d, expected %d", chan_name(l->c),
                              l->head.kind, (int)want);
        }
        if (alone && alone(ctx))
            return manta_fail(MANTA_EDIED, "%s: the process that was asked, or for which we train, has ended",
                              chan_name(l->c));
    }
}

manta_status ps_link_end(const ps_link *l)
{
    manta_status st = (manta_status)l->head.item;
    char text[400];
    size_t n = l->head.length < sizeof text - 1 ? (size_t)l->head.length : sizeof text - 1;

    if (!n) return MANTA_OK;
    for (size_t i = 0; i < n; i++) text[i] = l->in[i] >= ' ' && l->in[i] <= '~' ? l->in[i] : '?';
    text[n] = '\0';
    return manta_fail(st > MANTA_OK && st <= MANTA_EINTERRUPTED ? st : MANTA_EDIED, "%s", text);
}
