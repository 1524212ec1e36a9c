/* inner.h - what an argument refers to, before its bytes are a value (value_inner() says it of
 * a value). Private to task/. The runtime's lock is held in all functions here. */
#ifndef TASK_INNER_H
#define TASK_INNER_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/value.h>

/* The number of reference or handle i (from 0) of an argument; false: it has no such. */
bool inner_at(const manta_arg *a, size_t i, uint64_t *id);

/* Whether this process holds all that the argument refers to. */
bool inner_exists(const manta_arg *a);

/* Keeps what an argument refers to, once for each reference, until inner_unpin(): the lock may
 * be given away meanwhile, and others may release it. inner_exists(), and nothing was given away since. */
void inner_pin(const manta_arg *a);
void inner_unpin(const manta_arg *a);

#endif
