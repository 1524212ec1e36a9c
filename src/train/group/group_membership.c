/* group_membership.c - who holds which place: the controller's half of the step.
 * group_membership.h draws the states of a place; this is how they change.
 *
 * Two words of the control block carry every change: `commit`, whose generation says which
 * assignment is in force, and `staged`, the generation that the next commit will begin.
 *
 *   now     raise_generation(): put an assignment under a new number, then replace
 *           {generation} in `commit` by compare-and-swap. Whatever was begun under the old
 *           number can no longer be committed. For deaths, for a state that was changed,
 *           and whenever no step is open.
 *   later   stage_assignment(): put it under a new number and name that number in `staged`;
 *           the worker that commits the step begins the generation. For everything that
 *           takes work from somebody who lives.
 *
 *   the work of a place is          and who is ready for it is admitted
 *   in nobody's hands               now: no commit can come before somebody does it
 *   a living worker's               with the next commit
 *   nobody's, since no step is open now
 *
 * Who writes what: the controller alone writes `assignments`, `staged` and everything in
 * `membership`; `commit` is also written by workers, so here only by compare-and-swap. A
 * worker that takes `staged` into its commit may do so while we take `staged` back:
 * raise_generation() therefore looks at `commit` again in each try and notes a generation
 * that has begun (see_commit()) before it makes the next.
 *
 * What makes it safe: an assignment is written before its number appears in `commit` or
 * `staged`, and never while it is in force; there are four places for at most three that
 * may be looked at (in force, staged, being written). Work moves from a living worker only
 * with a commit, when nothing of the old step can be written any more, and from a dead one
 * only after its pidfd was readable.
 *
 * What may be changed: who gets which work (group_assignment.c), and when it is dealt out.
 * What may not: to move a living worker's work with raise_generation() while a step is open;
 * a generation stops a commit, but not a store that is on its way. */
#include "train/group/group_membership.h"

#include <string.h>

static uint64_t committed_word(const membership *r)
{
    return atomic_load(&r->c->commit);
}

static const assignment *assignment_now(const membership *r, uint64_t word)
{
    return &r->assignments[word_generation(word) % SHARED_ASSIGNMENTS];
}

/* Puts t under a new generation's number, which is returned. */
static uint32_t put_assignment(membership *r, const assignment *t)
{
    uint32_t generation = ++r->generations;

    r->assignments[generation % SHARED_ASSIGNMENTS] = *t;
    control_put_assignment(r->c, generation, t);
    return generation;
}

void membership_init(membership *r, control *c)
{
    assignment t = {0};

    memset(r, 0, sizeof *r);
    r->c = c;
    r->n = c->workers;
    assignment_home(&t, r->n, c->shards);
    put_assignment(r, &t);
}

static void see_commit(membership *r, uint64_t word)
{
    if (!r->staged || word_generation(word) != r->staged) return;
    r->staged = 0;
    atomic_store(&r->c->staged, 0);
    for (int i = 0; i < r->n; i++) {
        if (r->state[i] == MEMBERSHIP_ACTIVE && !assignment_now(r, word)->active[i])
            r->state[i] = MEMBERSHIP_LEAVING;
        if (r->state[i] != MEMBERSHIP_STAGED) continue;
        r->state[i] = MEMBERSHIP_ACTIVE;
        r->active_since[i] = word_step_number(word) - 1;
    }
}

void membership_see(membership *r)
{
    see_commit(r, committed_word(r));
}

/* Begins a generation at once, with those who are active. Whatever was begun
 * under the one before can no longer be committed. `home`: no step is open, so
 * that work may be taken from the living. */
static void raise_generation(membership *r, bool home)
{
    atomic_store(&r->c->staged, 0);
    for (;;) {
        uint64_t word = committed_word(r);
        uint32_t generation;
        assignment t;
        see_commit(r, word); /* it may have been taken before we took it back */
        t = *assignment_now(r, word);
        t.base = r->base;
        for (int i = 0; i < r->n; i++) t.active[i] = r->state[i] == MEMBERSHIP_ACTIVE;
        if (home) {
            assignment_home(&t, r->n, r->c->shards);
        } else if (r->keeps) {
            assignment_return(&t, r->n, r->c->shards);
        } else {
            assignment_fill(&t, r->n, r->c->shards);
        }
        generation = put_assignment(r, &t);
        if (atomic_compare_exchange_strong(&r->c->commit, &word,
                                           word_of(generation, word_step_number(word), word_buffer(word)))) {
            break;
        }
    }
    r->staged = 0;
    for (int i = 0; i < r->n; i++) {
        if (r->state[i] == MEMBERSHIP_STAGED) r->state[i] = MEMBERSHIP_READY;
    }
    control_wake(r->c);
}

static bool is_vacant(const membership *r, uint64_t word)
{
    return assignment_is_vacant(assignment_now(r, word), r->n, r->c->shards);
}

bool membership_remove(membership *r, int rank, bool keep)
{
    bool was_active;

    membership_see(r);
    was_active = r->state[rank] == MEMBERSHIP_ACTIVE;
    r->state[rank] = MEMBERSHIP_EMPTY;
    r->keeps = was_active && keep;
    /* It may also be in the assignment that waits. */
    if (was_active || r->staged || is_vacant(r, committed_word(r))) raise_generation(r, false);
    return was_active;
}

bool membership_is_asked(const membership *r)
{
    uint64_t word = committed_word(r);

    if (!r->keeps || !is_vacant(r, word)) return false;
    for (int i = 0; i < r->n; i++) {
        if (r->state[i] == MEMBERSHIP_ACTIVE && atomic_load(&r->c->worker[i].idle) == word_generation(word))
            return true;
    }
    return false;
}

void membership_deal(membership *r)
{
    r->keeps = false;
    if (is_vacant(r, committed_word(r))) raise_generation(r, false);
}

static void admit_ready(membership *r, membership_state as, int64_t number)
{
    for (int i = 0; i < r->n; i++) {
        if (r->state[i] != MEMBERSHIP_READY || r->unwanted[i]) continue;
        r->state[i] = as;
        r->active_since[i] = number;
    }
}

static void stage_assignment(membership *r, uint64_t word)
{
    assignment t = *assignment_now(r, word);
    int active = 0;

    for (int i = 0; i < r->n; i++) {
        t.active[i] =
            !r->unwanted[i] && (r->state[i] == MEMBERSHIP_ACTIVE || r->state[i] == MEMBERSHIP_READY);
        active += t.active[i];
    }
    if (!active) return; /* whoever is unwanted stays until another has come */
    assignment_home(&t, r->n, r->c->shards);
    if (assignment_equal(&t, assignment_now(r, word), r->n, r->c->shards)) return;
    admit_ready(r, MEMBERSHIP_STAGED, 0);
    r->staged = put_assignment(r, &t);
    atomic_store(&r->c->staged, r->staged);
}

/* No step is open: places are taken, and given up, at once. */
static void settle_now(membership *r, uint64_t word, bool ready)
{
    bool leaving = false;
    int staying = 0;

    admit_ready(r, MEMBERSHIP_ACTIVE, word_step_number(word));
    for (int i = 0; i < r->n; i++) staying += r->state[i] == MEMBERSHIP_ACTIVE && !r->unwanted[i];
    for (int i = 0; staying && i < r->n; i++) {
        if (r->state[i] != MEMBERSHIP_ACTIVE || !r->unwanted[i]) continue;
        r->state[i] = MEMBERSHIP_LEAVING;
        leaving = true;
    }
    if (ready || leaving) raise_generation(r, true);
}

void membership_settle(membership *r)
{
    uint64_t word = committed_word(r);
    bool ready = false;

    see_commit(r, word);
    for (int i = 0; i < r->n; i++) ready |= r->state[i] == MEMBERSHIP_READY && !r->unwanted[i];
    if (word_step_number(word) >= r->end) {
        settle_now(r, word, ready);
    } else if (is_vacant(r, word)) { /* so that no commit can come */
        if (!ready) return;
        admit_ready(r, MEMBERSHIP_ACTIVE, word_step_number(word));
        raise_generation(r, false);
    } else if (!r->staged && word_step_number(word) < r->end) {
        stage_assignment(r, word);
    }
}

void membership_touch(membership *r)
{
    r->base++;
    raise_generation(r, false);
}
