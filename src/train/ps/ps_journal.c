/* ps_journal.c - an epoch and the steps that are in.
 *
 *   steps of the epoch    0 ....... from.step ........................... from.step + steps
 *   numbers in the run              first ............................... first + steps
 *   is_in[]                         [0] [1] ...                           1: its gradients are in
 *
 *   as bytes: | epoch | from | first | steps |  is_in, a byte each |      64-bit words of the host
 *
 * The coordinator writes its own as workers report steps; each server writes its own as it
 * takes gradients; they meet in ps_journal_merge() when an epoch is begun on a server that
 * is in the middle of it. A step is never taken out, so merging cannot lose one, and a number
 * of an epoch that is over (a late push) counts as one that is in.
 *
 * Bytes come from another process: ps_journal_unpack() believes nothing of them, and they
 * must fit the epoch that the reader's own data have. */
#include "train/ps/ps_journal.h"

#include <string.h>

#include "base/mem.h"

enum { HEAD = 4 }; /* epoch, from, first, steps */

manta_status ps_journal_begin(ps_journal *j, train_position from, int64_t first, int64_t steps)
{
    void *is_in;

    TRY(mem_try_array(steps + 1, 1, "the steps of an epoch", &is_in));
    memset(is_in, 0, (size_t)steps + 1);
    ps_journal_release(j);
    *j = (ps_journal){.from = from, .first = first, .steps = steps, .is_in = is_in};
    return MANTA_OK;
}

void ps_journal_release(ps_journal *j)
{
    mem_try_free(j->is_in);
    *j = (ps_journal){0};
}

bool ps_journal_is_same_epoch(const ps_journal *a, const ps_journal *b)
{
    return a->is_in && b->is_in && position_equal(a->from, b->from) && a->first == b->first &&
           a->steps == b->steps;
}

int64_t ps_journal_count(const ps_journal *j)
{
    int64_t n = 0;

    for (int64_t i = 0; i < j->steps; i++) n += j->is_in[i];
    return n;
}

manta_status ps_journal_add(ps_journal *j, int64_t number, bool *is_new)
{
    int64_t step = number < 0 ? j->steps : number - j->first;

    *is_new = false;
    if (step >= j->steps) {
        return manta_fail(MANTA_ECORRUPT,
                          "step %lld of the run, expected one before %lld, where its epoch ends",
                          (long long)number, (long long)(j->first + j->steps));
    }
    if (step < 0 || j->is_in[step]) return MANTA_OK;
    j->is_in[step] = 1;
    *is_new = true;
    return MANTA_OK;
}

void ps_journal_merge(ps_journal *j, const ps_journal *other)
{
    for (int64_t i = 0; i < j->steps; i++) j->is_in[i] |= other->is_in[i];
}

size_t ps_journal_room(int64_t steps)
{
    return HEAD * sizeof(int64_t) + (size_t)steps;
}

size_t ps_journal_pack(const ps_journal *j, char *out)
{
    int64_t head[HEAD] = {j->from.epoch, j->from.step, j->first, j->steps};

    memcpy(out, head, sizeof head);
    if (j->steps) memcpy(out + sizeof head, j->is_in, (size_t)j->steps);
    return sizeof head + (size_t)j->steps;
}

manta_status ps_journal_unpack(ps_journal *j, int64_t steps, const char *bytes, size_t n)
{
    int64_t head[HEAD];

    if (n < sizeof head || n > ps_journal_room(steps))
        return manta_fail(MANTA_ECORRUPT, "the journal of an epoch in %zu bytes, expected %zu to %zu", n,
                          sizeof head, ps_journal_room(steps));
    memcpy(head, bytes, sizeof head);
    n -= sizeof head;
    if (head[0] < 0 || head[1] < 0 || head[2] < 0 || head[2] > INT64_MAX / 2 || head[3] != (int64_t)n) {
        return manta_fail(
            MANTA_ECORRUPT,
            "the journal of epoch %lld from step %lld has %lld steps in %zu bytes, expected a byte for each",
            (long long)head[0], (long long)head[1], (long long)head[3], n);
    }
    if (head[1] > steps || head[1] + head[3] != steps) {
        return manta_fail(MANTA_ECORRUPT,
                          "an epoch from step %lld with %lld to come, expected %lld in all: other data, or "
                          "another batch?",
                          (long long)head[1], (long long)head[3], (long long)steps);
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)bytes[sizeof head + i] > 1)
            return manta_fail(MANTA_ECORRUPT, "the journal of an epoch says %d of step %zu, expected 0 or 1",
                              (unsigned char)bytes[sizeof head + i], (size_t)head[1] + i);
    }
    TRY(ps_journal_begin(j, (train_position){head[0], head[1]}, head[2], head[3]));
    if (n) memcpy(j->is_in, bytes + sizeof head, n);
    return MANTA_OK;
}
