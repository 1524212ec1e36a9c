/* os/eventcount.h - sleeping until something in memory has changed.
 *
 * There are two forms. Both serve threads of one process and processes that share
 * the memory, and where nobody sleeps neither costs a notifier more than a fence and
 * a load.
 *
 * An *eventcount* is for a condition that lies elsewhere: rings with messages,
 * flags, states. Who waits says so, looks once more, and sleeps; who has changed
 * something looks whether anybody sleeps:
 *
 *     waiter                                  notifier
 *     seen = count                            change the condition
 *     sleepers += 1                           fence
 *     fence                                   sleepers == 0? then that was all
 *     look: is the condition there?           count += 1
 *     no: sleep while count == seen           wake all who sleep on count
 *     sleepers -= 1
 *
 * Why no wake is lost: of two fences one comes first. Is it the notifier's, then
 * the waiter's look sees the change, and it does not sleep. Is it the waiter's,
 * then the notifier sees a sleeper and counts; and since the waiter read `count`
 * before its fence, it has the number from before. So either it comes to the
 * kernel afterwards, which compares and lets nobody sleep on an old number, or it
 * sleeps by then, and is woken.
 *
 * An *event word* is for a word whose change is itself what is waited for: how
 * many tasks are left, how often something happened. No second word need be
 * written, and a spinner looks at the word alone:
 *
 *     waiter                                  notifier
 *     seen = word; is there nothing to do?    change the condition, if it lies elsewhere
 *     sleepers += 1                           change the word
 *     sleep while word == seen                sleepers == 0? then that was all
 *     sleepers -= 1                           wake who sleeps on the word
 *
 * Why no wake is lost: `sleepers` and the word are changed and looked at with
 * sequential consistency. Either the notifier sees the sleeper, or the sleeper
 * raised `sleepers` after that look and the kernel compares a word that has
 * changed. Every change that matters must change the word.
 *
 * Who writes what: anybody adds to a count, a waiter raises and lowers
 * `sleepers`. A process that is killed in its sleep leaves `sleepers` raised,
 * which costs each notifier a system call and loses nothing; where that may last,
 * each process has a `sleepers` of its own, which its heirs set to 0
 * (train/session/shared.h). A notifier that dies between counting and waking
 * loses its own wake only: whoever waits for it waits for its death too.
 *
 * A count that goes round (2^32 notifications between a waiter's two steps) is not
 * provided for. Memory of zeros is an eventcount. Deadlines are points of clock_now_ns().
 * What may be changed: how long to spin, which is the caller's (os/spin.h). */
#ifndef OS_EVENTCOUNT_H
#define OS_EVENTCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "os/crash.h"
#include "os/spin.h"

#define EVENTCOUNT_CRASH_POINTS(X)                                                                           \
    X(EVENTCOUNT_CRASH_COUNTED, "os/counted", "a notification is counted, nobody is woken")                  \
    X(EVENTCOUNT_CRASH_ANNOUNCED, "os/announced", "a sleeper has announced itself")
CRASH_DECLARE(eventcount, EVENTCOUNT_CRASH_POINTS)

/* ---- an eventcount ---- */

typedef struct eventcount {
    _Atomic uint32_t count; /* of the notifications that found a sleeper; anyone adds */
    _Atomic uint32_t sleepers; /* threads that sleep or are about to */
} eventcount;

/* Says that the caller is about to sleep. To be followed by a look at the
 * condition; by eventcount_sleep() with what is returned here, when the look
 * found nothing; and by eventcount_leave() in any case. */
uint32_t eventcount_prepare(eventcount *e);

/* Sleeps until a notification that came after eventcount_prepare(), or the
 * deadline: false. Also returns for no reason: look again. */
bool eventcount_sleep(eventcount *e, uint32_t seen, int64_t deadline);

/* Ends what eventcount_prepare() began. */
void eventcount_leave(eventcount *e);

/* All three: sleeps unless ready(ctx) finds something after all; it is called once
 * the sleep is announced. False: the deadline has passed. */
bool eventcount_wait(eventcount *e, bool (*ready)(void *ctx), void *ctx, int64_t deadline);

/* As eventcount_wait(), for who wants to know of signals: MANTA_EINTERRUPTED a handler of one ran and
 * ended the sleep, MANTA_ETIMEDOUT the deadline has passed; without a sentence. */
manta_status eventcount_wait_signal(eventcount *e, bool (*ready)(void *ctx), void *ctx, int64_t deadline);

/* Wakes all who sleep, whether or not any do. */
void eventcount_wake(eventcount *e);

/* Wakes all who sleep, if any do, for a caller who has passed a fence of
 * memory_order_seq_cst since the change: one fence then serves many eventcounts. */
static inline void eventcount_notify_fenced(eventcount *e)
{
    if (__builtin_expect(atomic_load_explicit(&e->sleepers, memory_order_relaxed) != 0, 0))
        eventcount_wake(e);
}

/* Wakes all who sleep, if any do. Call it after the change. */
static inline void eventcount_notify(eventcount *e)
{
    atomic_thread_fence(memory_order_seq_cst);
    eventcount_notify_fenced(e);
}

/* ---- an event word ---- */

/* Spins until (*word == value) == equal, which is then true, or as long as p says. */
bool eventword_spin(const _Atomic uint32_t *word, uint32_t value, bool equal, const spin_policy *p);

/* Sleeps while *word == value, once: until woken, or the deadline: false. Also
 * returns for no reason. `sleepers` is the word or one of the words that those
 * look at who change *word. `across`: other processes may. */
bool eventword_sleep(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers, int64_t deadline,
                     bool across);

void eventword_wake_some(_Atomic uint32_t *word, int n, bool across);

/* Wakes up to n of those who sleep on the word, if `sleepers` says that any do, and
 * returns whether it does. Call it after a change of the word with
 * memory_order_seq_cst. */
static inline bool eventword_wake(_Atomic uint32_t *word, const _Atomic uint32_t *sleepers, int n,
                                  bool across)
{
    if (__builtin_expect(atomic_load(sleepers) == 0, 1)) return false;
    eventword_wake_some(word, n, across);
    return true;
}

#endif
