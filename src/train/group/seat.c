/* seat.c - a worker's part in the step, decision by decision. */
#include "train/group/seat.h"

#include <string.h>

#include "train/group/group_table.h"

void seat_turn_init(seat_turn *s, control *c, int rank)
{
    memset(s, 0, sizeof *s);
    s->c = c;
    s->rank = rank;
}

/* ---- flags ---- */

static uint64_t flag_of(const seat_turn *s)
{
    return word_of(word_generation(s->word), word_ticket(s->word), 0);
}

static bool all_set(_Atomic uint64_t *flags, int n, uint64_t flag)
{
    for (int i = 0; i < n; i++) {
        if (atomic_load(&flags[i]) != flag) return false;
    }
    return true;
}

/* How many ranges the step has: an evaluation has only the sums to write. */
static int ranges_of(const seat_turn *s)
{
    return s->train ? s->c->seats : 1;
}

static bool needs_norms(const seat_turn *s)
{
    return s->train && s->c->norms;
}

static bool is_done(const seat_turn *s, const seat_mark *m)
{
    return m->ticket == seat_ticket(s) + 1 && m->base == s->t.base;
}

/* Sets a flag; whoever completes a phase says so. Two that finish at the same
 * moment may both say so; one of them does. */
static void publish(seat_turn *s, _Atomic uint64_t *flags, int n, int item)
{
    control *c = s->c;
    uint64_t flag = flag_of(s);

    shared_crash(c, s->rank, CRASH_FLAG_BEFORE);
    atomic_store(&flags[item], flag);
    shared_crash(c, s->rank, CRASH_FLAG_AFTER);
    if (all_set(flags, n, flag)) control_pulse(c);
}

/* ---- taking a table ---- */

/* What this seat has done in this step keeps; the flags are the generation's. */
static void publish_again(seat_turn *s)
{
    control *c = s->c;

    for (int v = 0; v < c->shards; v++) {
        if (s->t.shard[v] == s->rank && is_done(s, &s->shard[v])) publish(s, c->shard_flag, c->shards, v);
    }
    for (int r = 0; r < ranges_of(s); r++) {
        if (s->t.range[r] != s->rank) continue;
        if (needs_norms(s) && is_done(s, &s->norm[r])) publish(s, c->norm_flag, c->seats, r);
        if (is_done(s, &s->range[r])) publish(s, c->range_flag, ranges_of(s), r);
    }
}

/* The job of the ticket at hand, when there is one. It does not change while
 * one of its tickets is open. */
static bool take_job(seat_turn *s)
{
    const shared_job *j = &s->c->job;

    if (seat_ticket(s) >= atomic_load_explicit(&j->end, memory_order_acquire)) return false;
    s->feed = j->feed;
    s->train = j->train;
    s->epoch = j->epoch;
    s->step = seat_ticket(s) - j->begin;
    s->open = true;
    publish_again(s);
    return true;
}

static void take_table(seat_turn *s, uint64_t word)
{
    control *c = s->c;

    for (;;) {
        uint64_t now;
        control_get_table(c, word_generation(word), &s->t);
        atomic_thread_fence(memory_order_acquire);
        now = atomic_load_explicit(&c->commit, memory_order_acquire);
        if (word_generation(now) == word_generation(word)) {
            s->word = now;
            break;
        }
        word = now;
    }
    s->open = false;
    shared_crash(c, s->rank, CRASH_TABLE_TAKEN);
}

/* ---- the turn ---- */

static int find_undone(const seat_turn *s, const uint16_t *holder, const seat_mark *marks, int n)
{
    for (int i = 0; i < n; i++) {
        if (holder[i] == s->rank && !is_done(s, &marks[i])) return i;
    }
    return -1;
}

/* Everything of the step is there: publishes it, and with it the table that
 * waits for a commit, if any. */
static bool commit(seat_turn *s)
{
    control *c = s->c;
    uint64_t word = s->word;
    uint32_t generation = word_generation(word), staged = atomic_load(&c->staged);

    if (staged > generation) generation = staged;
    shared_crash(c, s->rank, CRASH_COMMIT_BEFORE);
    if (!atomic_compare_exchange_strong(
            &c->commit, &word,
            word_of(generation, seat_ticket(s) + 1, s->train ? seat_other_side(s) : word_side(s->word))))
        return false;
    shared_crash(c, s->rank, CRASH_COMMIT_AFTER);
    return true;
}

seat_action seat_next(seat_turn *s, int *item)
{
    control *c = s->c;

    for (;;) {
        uint64_t word = atomic_load_explicit(&c->commit, memory_order_acquire), flag;
        int i;

        if (atomic_load_explicit(&c->leave, memory_order_relaxed)) return SEAT_LEAVE;
        if (word != s->word) take_table(s, word);
        if (!s->t.seated[s->rank]) return atomic_load(&c->seat[s->rank].dismissed) ? SEAT_LEAVE : SEAT_WAIT;
        if (!s->open && !take_job(s)) return SEAT_WAIT;
        flag = flag_of(s);
        if ((*item = i = find_undone(s, s->t.shard, s->shard, c->shards)) >= 0) return SEAT_SHARD;
        if (!all_set(c->shard_flag, c->shards, flag)) return SEAT_WAIT;
        if (needs_norms(s)) {
            if ((*item = find_undone(s, s->t.range, s->norm, c->seats)) >= 0) return SEAT_NORMS;
            if (!all_set(c->norm_flag, c->seats, flag)) return SEAT_WAIT;
        }
        if ((*item = find_undone(s, s->t.range, s->range, ranges_of(s))) >= 0) return SEAT_UPDATE;
        if (!all_set(c->range_flag, ranges_of(s), flag)) return SEAT_WAIT;
        if (atomic_load(&c->allowed) <= seat_ticket(s)) return SEAT_WAIT;
        if (commit(s)) return SEAT_COMMITTED;
    }
}

bool seat_sees_vacancy(const seat_turn *s)
{
    return s->open && s->t.seated[s->rank] && table_is_vacant(&s->t, s->c->seats, s->c->shards);
}

bool seat_owes_shard(const seat_turn *s, int shard)
{
    return s->t.shard[shard] == s->rank && !is_done(s, &s->shard[shard]);
}

/* A shard reads nothing but the committed side, so it counts also when others
 * died meanwhile, unless that side was changed. */
static bool keep_shard(seat_turn *s, int shard)
{
    int64_t ticket = seat_ticket(s);
    uint32_t base = s->t.base;

    take_table(s, atomic_load_explicit(&s->c->commit, memory_order_acquire));
    if (seat_ticket(s) != ticket || s->t.base != base || s->t.shard[shard] != s->rank) return false;
    s->shard[shard] = (seat_mark){.ticket = ticket + 1, .base = base};
    return true; /* take_job() sets the flag */
}

bool seat_done(seat_turn *s, seat_action what, int item)
{
    control *c = s->c;
    seat_mark mark = {.ticket = seat_ticket(s) + 1, .base = s->t.base};
    bool same;

    /* What was read for this action was read before the generation is looked
     * at: had it been rewritten under a newer one, we would see that one. */
    atomic_thread_fence(memory_order_acquire);
    same = atomic_load_explicit(&c->commit, memory_order_acquire) == s->word;
    if (!same) return what == SEAT_SHARD && keep_shard(s, item);
    if (what == SEAT_SHARD) {
        s->shard[item] = mark;
        publish(s, c->shard_flag, c->shards, item);
    } else if (what == SEAT_NORMS) {
        s->norm[item] = mark;
        publish(s, c->norm_flag, c->seats, item);
    } else if (what == SEAT_UPDATE) {
        s->range[item] = mark;
        publish(s, c->range_flag, ranges_of(s), item);
    }
    return true;
}
