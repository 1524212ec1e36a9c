/* os/futex.h - sleeping on a word, as the kernel offers it.
 *
 * Known in os/ alone: whoever else waits for a change in memory uses
 * os/eventcount.h, which says why no wake is lost. */
#ifndef OS_FUTEX_H
#define OS_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Sleeps while *word == expected, until woken or the deadline. Returns MANTA_OK
 * also when woken for no reason (a signal, another waiter): look again.
 * MANTA_ETIMEDOUT when the deadline has passed; no sentence is recorded, because
 * the caller knows what it waited for and we do not. `shared`: the word lies in
 * memory that several processes share. */
manta_status futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline, bool shared);

/* As futex_wait(), but MANTA_EINTERRUPTED when a handler of a signal ran. */
manta_status futex_wait_signal(_Atomic uint32_t *word, uint32_t expected, int64_t deadline, bool shared);

/* Wakes up to n threads that sleep on the word. */
void futex_wake(_Atomic uint32_t *word, int n, bool shared);

#endif
