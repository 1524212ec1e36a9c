/* worker_step.c - a worker's part in the step, decision by decision.
 *
 *   the word has changed ─▶ take_assignment() ─▶ take_job() ─▶ publish_again()
 *                                                                  │
 *      ┌───────────────────────────────────────────────────────────┘
 *      ▼                all shard flags          all norm flags           all range flags
 *   own shards ───────────────▶ own norms ──────────────▶ own ranges ────────────────▶ commit_step()
 *   one by one    (wait)        if needed     (wait)                     (wait, and for the gate)
 *
 * worker_step_next() walks this line from the left every time it is called, and stops at the
 * first thing that is left to do or to wait for: there is no state of our own to get wrong, only
 * what the control block says and which items we have done (worker_mark: in which step and
 * from which base).
 *
 * Who writes what: flags of the shards and ranges that the assignment gives us, and `commit`,
 * by compare-and-swap, once all flags are set. Everything else is only read.
 *
 * What makes it safe: a flag carries {generation, step number}, so one that was set under an
 * older generation counts for nothing, and a flag is set after the last store to what it
 * stands for. An assignment that is overwritten while we read it is of a generation that is
 * over, so take_assignment() reads `commit` again afterwards and starts anew if it has changed.
 * What was finished is kept over a change of generation, and only gets a new flag; so is a
 * shard that was being computed, since it reads nothing but the committed buffer. An update
 * that was under way is done again: it read everybody's slots, one of which may have been
 * rewritten meanwhile.
 *
 * What may be changed: the order in which own items are done. What may not: to keep an update
 * that was under way when the generation changed, or to commit without all flags of this one. */
#include "train/group/worker_step.h"

#include <string.h>

#include "train/group/group_assignment.h"

CRASH_DEFINE(group, GROUP_CRASH_POINTS)

void worker_step_init(worker_step *s, control *c, int rank)
{
    memset(s, 0, sizeof *s);
    s->c = c;
    s->rank = rank;
}

/* ---- flags ---- */

static uint64_t flag_of(const worker_step *s)
{
    return word_of(word_generation(s->word), word_step_number(s->word), 0);
}

static bool all_set(_Atomic uint64_t *flags, int n, uint64_t flag)
{
    for (int i = 0; i < n; i++) {
        if (atomic_load(&flags[i]) != flag) return false;
    }
    return true;
}

/* How many ranges the step has: an evaluation has only the sums to write. */
static int ranges_of(const worker_step *s)
{
    return s->train ? s->c->workers : 1;
}

static bool needs_norms(const worker_step *s)
{
    return s->train && s->c->norms;
}

static bool is_done(const worker_step *s, const worker_mark *m)
{
    return m->number == worker_step_number(s) + 1 && m->base == s->t.base;
}

/* Sets a flag; whoever completes a phase says so. Two that finish at the same
 * moment may both say so; one of them does. */
static void publish_flag(worker_step *s, _Atomic uint64_t *flags, int n, int item)
{
    control *c = s->c;
    uint64_t flag = flag_of(s);

    group_crash(GROUP_CRASH_FLAG_BEFORE);
    atomic_store(&flags[item], flag);
    group_crash(GROUP_CRASH_FLAG_AFTER);
    if (all_set(flags, n, flag)) control_wake(c);
}

/* ---- taking an assignment ---- */

/* What this worker has done in this step keeps; the flags are the generation's. */
static void publish_again(worker_step *s)
{
    control *c = s->c;

    for (int v = 0; v < c->shards; v++) {
        if (s->t.shard[v] == s->rank && is_done(s, &s->shard[v]))
            publish_flag(s, c->shard_flag, c->shards, v);
    }
    for (int r = 0; r < ranges_of(s); r++) {
        if (s->t.range[r] != s->rank) continue;
        if (needs_norms(s) && is_done(s, &s->norm[r])) publish_flag(s, c->norm_flag, c->workers, r);
        if (is_done(s, &s->range[r])) publish_flag(s, c->range_flag, ranges_of(s), r);
    }
}

/* The job of the step at hand, when there is one. It does not change while
 * one of its steps is open. */
static bool take_job(worker_step *s)
{
    const shared_job *j = &s->c->job;

    if (worker_step_number(s) >= atomic_load_explicit(&j->end, memory_order_acquire)) return false;
    s->feed = j->feed;
    s->train = j->train;
    s->at = position_of_number(j->epoch, j->begin, worker_step_number(s));
    s->open = true;
    publish_again(s);
    return true;
}

static void take_assignment(worker_step *s, uint64_t word)
{
    control *c = s->c;

    for (;;) {
        uint64_t now;
        control_get_assignment(c, word_generation(word), &s->t);
        atomic_thread_fence(memory_order_acquire);
        now = atomic_load_explicit(&c->commit, memory_order_acquire);
        if (word_generation(now) == word_generation(word)) {
            s->word = now;
            break;
        }
        word = now;
    }
    s->open = false;
    group_crash(GROUP_CRASH_ASSIGNMENT_TAKEN);
}

/* ---- the turn ---- */

static int find_undone(const worker_step *s, const uint16_t *holder, const worker_mark *marks, int n)
{
    for (int i = 0; i < n; i++) {
        if (holder[i] == s->rank && !is_done(s, &marks[i])) return i;
    }
    return -1;
}

/* Everything of the step is there: publishes it, and with it the assignment that
 * waits for a commit, if any. */
static bool commit_step(worker_step *s)
{
    control *c = s->c;
    uint64_t word = s->word;
    uint32_t generation = word_generation(word), staged = atomic_load(&c->staged);

    if (staged > generation) generation = staged;
    group_crash(GROUP_CRASH_COMMIT_BEFORE);
    if (!atomic_compare_exchange_strong(
            &c->commit, &word,
            word_of(generation, worker_step_number(s) + 1,
                    s->train ? worker_step_other_buffer(s) : word_buffer(s->word))))
        return false;
    group_crash(GROUP_CRASH_COMMIT_AFTER);
    return true;
}

worker_action worker_step_next(worker_step *s, int *item)
{
    control *c = s->c;

    for (;;) {
        uint64_t word = atomic_load_explicit(&c->commit, memory_order_acquire), flag;
        int i;

        if (atomic_load_explicit(&c->leave, memory_order_relaxed)) return WORKER_LEAVE;
        if (word != s->word) take_assignment(s, word);
        if (!s->t.active[s->rank])
            return atomic_load(&c->worker[s->rank].dismissed) ? WORKER_LEAVE : WORKER_WAIT;
        if (!s->open && !take_job(s)) return WORKER_WAIT;
        flag = flag_of(s);
        if ((*item = i = find_undone(s, s->t.shard, s->shard, c->shards)) >= 0) return WORKER_SHARD;
        if (!all_set(c->shard_flag, c->shards, flag)) return WORKER_WAIT;
        if (needs_norms(s)) {
            if ((*item = find_undone(s, s->t.range, s->norm, c->workers)) >= 0) return WORKER_NORMS;
            if (!all_set(c->norm_flag, c->workers, flag)) return WORKER_WAIT;
        }
        if ((*item = find_undone(s, s->t.range, s->range, ranges_of(s))) >= 0) return WORKER_UPDATE;
        if (!all_set(c->range_flag, ranges_of(s), flag)) return WORKER_WAIT;
        if (atomic_load(&c->allowed) <= worker_step_number(s)) return WORKER_WAIT;
        if (commit_step(s)) return WORKER_COMMITTED;
    }
}

bool worker_step_sees_vacancy(const worker_step *s)
{
    return s->open && s->t.active[s->rank] && assignment_is_vacant(&s->t, s->c->workers, s->c->shards);
}

bool worker_step_owes_shard(const worker_step *s, int shard)
{
    return s->t.shard[shard] == s->rank && !is_done(s, &s->shard[shard]);
}

/* A shard reads nothing but the committed buffer, so it counts also when others
 * died meanwhile, unless that buffer was changed. */
static bool keep_shard(worker_step *s, int shard)
{
    int64_t number = worker_step_number(s);
    uint32_t base = s->t.base;

    take_assignment(s, atomic_load_explicit(&s->c->commit, memory_order_acquire));
    if (worker_step_number(s) != number || s->t.base != base || s->t.shard[shard] != s->rank) return false;
    s->shard[shard] = (worker_mark){.number = number + 1, .base = base};
    return true; /* take_job() sets the flag */
}

bool worker_step_done(worker_step *s, worker_action what, int item)
{
    control *c = s->c;
    worker_mark mark = {.number = worker_step_number(s) + 1, .base = s->t.base};
    bool same;

    /* What was read for this action was read before the generation is looked
     * at: had it been rewritten under a newer one, we would see that one. */
    atomic_thread_fence(memory_order_acquire);
    same = atomic_load_explicit(&c->commit, memory_order_acquire) == s->word;
    if (!same) return what == WORKER_SHARD && keep_shard(s, item);
    if (what == WORKER_SHARD) {
        s->shard[item] = mark;
        publish_flag(s, c->shard_flag, c->shards, item);
    } else if (what == WORKER_NORMS) {
        s->norm[item] = mark;
        publish_flag(s, c->norm_flag, c->workers, item);
    } else if (what == WORKER_UPDATE) {
        s->range[item] = mark;
        publish_flag(s, c->range_flag, ranges_of(s), item);
    }
    return true;
}
