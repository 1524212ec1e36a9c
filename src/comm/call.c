/* call.c - see call.h. */
#include "comm/call.h"

#include <stdio.h>
#include <string.h>

static const char *const kinds[MANTA_COLLECTIVE_COUNT] = {
    "barrier",        "all-reduce", "broadcast", "reduce",  "all-gather",
    "reduce-scatter", "all-to-all", "send",      "receive",
};

static const char *const reductions[MANTA_REDUCE_COUNT] = {"sum", "mean", "min", "max", "product"};

const char *manta_collective_name(manta_collective_kind k)
{
    return (unsigned)k < MANTA_COLLECTIVE_COUNT ? kinds[k] : "?";
}

const char *manta_reduce_name(manta_reduce r)
{
    return (unsigned)r < MANTA_REDUCE_COUNT ? reductions[r] : "?";
}

bool call_reduces(manta_collective_kind k)
{
    return k == MANTA_COLLECTIVE_ALL_REDUCE || k == MANTA_COLLECTIVE_REDUCE ||
           k == MANTA_COLLECTIVE_REDUCE_SCATTER;
}

bool call_is_message(manta_collective_kind k)
{
    return k == MANTA_COLLECTIVE_SEND || k == MANTA_COLLECTIVE_RECEIVE;
}

static bool has_peer(manta_collective_kind k)
{
    return k == MANTA_COLLECTIVE_BROADCAST || k == MANTA_COLLECTIVE_REDUCE || call_is_message(k);
}

int64_t call_parts_in(const manta_collective *c, int size)
{
    return c->kind == MANTA_COLLECTIVE_REDUCE_SCATTER || c->kind == MANTA_COLLECTIVE_ALL_TO_ALL ? size : 1;
}

int64_t call_parts_out(const manta_collective *c, int size)
{
    return c->kind == MANTA_COLLECTIVE_ALL_GATHER || c->kind == MANTA_COLLECTIVE_ALL_TO_ALL ? size : 1;
}

/* Whether this rank reads `in`, and writes `out`. */
static bool rank_reads(const manta_collective *c, int rank)
{
    return c->kind == MANTA_COLLECTIVE_BROADCAST ? rank == c->peer : c->kind != MANTA_COLLECTIVE_RECEIVE;
}

static bool rank_writes(const manta_collective *c, int rank)
{
    return c->kind == MANTA_COLLECTIVE_REDUCE ? rank == c->peer : c->kind != MANTA_COLLECTIVE_SEND;
}

manta_status call_check(const manta_collective *c, int rank, int size)
{
    const char *name = manta_collective_name(c->kind);

    if ((unsigned)c->kind >= MANTA_COLLECTIVE_COUNT)
        return manta_fail(MANTA_EINVAL, "collective: %d is no kind, expected 0 to %d", (int)c->kind,
                          MANTA_COLLECTIVE_COUNT - 1);
    if (c->memory != MANTA_MEMORY_HOST || c->queue)
        return manta_fail(MANTA_EUNSUPPORTED, "%s: the memory lies on a device, expected memory of the host",
                          name);
    if (has_peer(c->kind) && (c->peer < 0 || c->peer >= size))
        return manta_fail(MANTA_EINVAL, "%s: there is no rank %d in a group of %d", name, c->peer, size);
    if (call_is_message(c->kind) && c->peer == rank)
        return manta_fail(MANTA_EINVAL, "%s: rank %d is its own peer, expected another rank", name, rank);
    if (c->kind == MANTA_COLLECTIVE_BARRIER) return MANTA_OK;
    size_t element = manta_dtype_size(c->dtype);
    if (!element)
        return manta_fail(MANTA_EINVAL, "%s: %d is no dtype, expected 0 to %d", name, (int)c->dtype,
                          MANTA_DTYPE_COUNT - 1);
    if (c->n < 0 || (uint64_t)c->n > (uint64_t)INT64_MAX / element / (uint64_t)size)
        return manta_fail(MANTA_EINVAL,
                          "%s: %lld elements asked for, expected at least 0 and as many as can be addressed",
                          name, (long long)c->n);
    if (call_reduces(c->kind) && (unsigned)c->reduce >= MANTA_REDUCE_COUNT)
        return manta_fail(MANTA_EINVAL, "%s: %d is no reduction, expected 0 to %d", name, (int)c->reduce,
                          MANTA_REDUCE_COUNT - 1);
    if (call_reduces(c->kind) && c->dtype == MANTA_DTYPE_BOOL)
        return manta_fail(MANTA_EINVAL, "%s: %s of bool elements, expected numbers", name,
                          manta_reduce_name(c->reduce));
    if (c->n > 0 && ((rank_reads(c, rank) && !c->in) || (rank_writes(c, rank) && !c->out)))
        return manta_fail(MANTA_EINVAL, "%s: no memory was given for its %lld elements", name,
                          (long long)c->n);
    return MANTA_OK;
}

call_words call_words_of(const manta_collective *c, uint64_t number)
{
    call_words w = {.kind = (uint32_t)c->kind, .number = number};

    if (c->kind == MANTA_COLLECTIVE_BARRIER) return w;
    w.n = (uint64_t)c->n;
    w.dtype = (uint32_t)c->dtype;
    if (call_reduces(c->kind)) w.reduce = (uint32_t)c->reduce;
    if (has_peer(c->kind) && !call_is_message(c->kind)) w.peer = (uint32_t)c->peer;
    if (call_is_message(c->kind)) w.kind = MANTA_COLLECTIVE_SEND; /* both sides mean the same message */
    return w;
}

bool call_words_are_valid(const call_words *w)
{
    return w->kind < MANTA_COLLECTIVE_COUNT && w->dtype < MANTA_DTYPE_COUNT &&
           w->reduce < MANTA_REDUCE_COUNT && w->peer < MANTA_GROUP_MAX &&
           w->n <= (uint64_t)INT64_MAX / 8 / MANTA_GROUP_MAX;
}

char *call_text(const call_words *w, char *text, size_t size)
{
    manta_collective_kind k = (manta_collective_kind)w->kind;
    size_t used;

    snprintf(text, size, "%s", w->kind == MANTA_COLLECTIVE_SEND ? "a message" : manta_collective_name(k));
    used = strlen(text);
    if (w->kind < MANTA_COLLECTIVE_COUNT && call_reduces(k))
        snprintf(text + used, size - used, " (%s)", manta_reduce_name((manta_reduce)w->reduce));
    if (k == MANTA_COLLECTIVE_BARRIER) return text;
    used = strlen(text);
    snprintf(text + used, size - used, " of %llu %s", (unsigned long long)w->n,
             manta_dtype_name((manta_dtype)w->dtype));
    used = strlen(text);
    if (k == MANTA_COLLECTIVE_BROADCAST || k == MANTA_COLLECTIVE_REDUCE)
        snprintf(text + used, size - used, " with root %u", w->peer);
    return text;
}

manta_status call_compare(int rank_a, const call_words *a, int rank_b, const call_words *b)
{
    char left[120], right[120];

    if (a->kind == b->kind && a->dtype == b->dtype && a->reduce == b->reduce && a->peer == b->peer &&
        a->n == b->n && a->number == b->number)
        return MANTA_OK;
    if (!call_words_are_valid(a) || !call_words_are_valid(b))
        return manta_fail(MANTA_ECORRUPT, "rank %d announced a collective that there is not",
                          call_words_are_valid(a) ? rank_b : rank_a);
    if (a->number != b->number)
        return manta_fail(MANTA_ECORRUPT, "rank %d is at collective %llu of the group and rank %d at %llu",
                          rank_a, (unsigned long long)a->number, rank_b, (unsigned long long)b->number);
    return manta_fail(MANTA_EINVAL, "the ranks called different things: rank %d %s, rank %d %s", rank_a,
                      call_text(a, left, sizeof left), rank_b, call_text(b, right, sizeof right));
}
