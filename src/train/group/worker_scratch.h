/* train/group/worker_scratch.h - the memory that a worker computes in.
 *
 * Activations and workspaces of a step mean nothing to anybody, but their pages
 * are worth something: memory that a new process asks for is found, cleared and
 * perhaps brought by the machine's host first, which took a successor's first
 * shard of resnet18 up to 40 ms of 110. So they lie in a memory of the rank,
 * which the controller holds, and a successor finds them as they were left.
 *
 * Only on large pages: on small ones the arithmetic would be slower, and then
 * the worker has memory of its own.
 *
 * Threads: one process at a time, the worker of the rank, or the one that waits to be;
 * its predecessor is dead. */
#ifndef TRAIN_GROUP_WORKER_SCRATCH_H
#define TRAIN_GROUP_WORKER_SCRATCH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct worker_scratch {
    int fd; /* borrowed; -1: none */
    _Atomic uint64_t *made; /* bytes that are reserved in it; outlives the process */
    void *at; /* what was given last */
    size_t size; /* bytes of the scratch memory that `at` is; 0: it is memory of our own */
} worker_scratch;

/* exec_options' `block`; ctx is the worker_scratch. */
void *worker_scratch_block(void *ctx, size_t size);

#endif
