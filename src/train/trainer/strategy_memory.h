/* train/trainer/strategy_memory.h - the memory that a strategy and its replicas share, and
 * what each of them knows.
 *
 *   | commits: word, steps, epitaphs | buffer 0 | buffer 1 | values of rank 0 | rank 1 | ... |
 *
 * A buffer has every variable, one after the other. `word` says which one is committed, and
 * which commit it was. Who writes what: rank 0 of this host the buffer that is not
 * committed, and then the word; an epitaph and an area of values their rank; all of it the
 * caller, while no replica runs. Nothing in it is an address.
 *
 * strategy.c         opening, variables, commits, running and running again
 * strategy_step.c    a step of a mirrored session
 * strategy_values.c  what replicas leave for their caller */
#ifndef TRAIN_TRAINER_STRATEGY_MEMORY_H
#define TRAIN_TRAINER_STRATEGY_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/strategy.h>

#include "base/vec.h"

enum { STRATEGY_ALIGN = 64 };

/* What a replica says at its end. */
typedef struct epitaph {
    _Atomic int done; /* fn has returned */
    int order; /* of failing, from 1; 0: it did not */
    manta_error error;
    _Atomic size_t used; /* bytes of values */
} epitaph;

/* In shared memory, before the buffers. */
typedef struct commits {
    _Atomic uint64_t word; /* number of commits << 1 | buffer */
    _Atomic int failed; /* how many have */
    int64_t step[2]; /* of each buffer */
    epitaph end[MANTA_GROUP_MAX];
} commits;

typedef struct variable {
    char *name; /* NULL: a session's state */
    manta_array value; /* the caller's */
    manta_session *s;
    size_t offset, size;
    void *copy; /* this replica's */
} variable;

struct manta_strategy {
    manta_strategy_options o;
    int n; /* replicas */
    int here; /* of them, forked by us; 0: this process is one, number `rank` */
    int rank;
    char address[512]; /* MULTI_WORKER: where rank 0 listens */
    VEC(variable) variables;
    size_t buffer_size, value_size, size;
    int fd;
    char *memory; /* NULL before the first run */
    bool running;
};

struct manta_replica {
    manta_strategy *s;
    manta_group *g;
    int rank;
    uint64_t seen; /* the word that our copies come from */
};

static inline size_t strategy_round_up(size_t n)
{
    return (n + STRATEGY_ALIGN - 1) / STRATEGY_ALIGN * STRATEGY_ALIGN;
}

static inline commits *commits_of(const manta_strategy *s)
{
    return (commits *)(void *)s->memory;
}

static inline char *buffer_of(const manta_strategy *s, int buffer)
{
    return s->memory + strategy_round_up(sizeof(commits)) + (size_t)buffer * s->buffer_size;
}

static inline char *values_of(const manta_strategy *s, int rank)
{
    return buffer_of(s, 2) + (size_t)rank * s->value_size;
}

#endif
