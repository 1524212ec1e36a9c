/* program.h - a program that the generator makes: a list of operations, each a kind, the
 * slot that it fills, numbers with names, and slots that it uses.
 *
 * The text of a program is a line for each operation:
 *
 *     node cpus=2 tokens=4
 *     call r1 n=30 size=100 result=9000
 *     get r1
 *     call r2 n=2 result=8 args=r1
 *
 * The first line is the node. A number that is not named is 0. What a program means does
 * not depend on what was deleted before: an operation whose slots are empty does nothing,
 * and numbers that cannot be are cut to what can (run.c). So every part of a program is a
 * program, which is what the shrinker needs. */
#ifndef SOAK_PROGRAM_H
#define SOAK_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SOAK_OPS = 48, SOAK_ARGS = 3, SOAK_SLOTS = 64 };

typedef enum soak_kind {
    SOAK_NODE,
    SOAK_PUT, /* an object of `size` bytes; how=1: filled in place */
    SOAK_CALL, /* n calls */
    SOAK_GET, /* waits for a slot and compares; timeout in ms, 0: for ever; how=1: for all together first,
               * how=2: in an event loop */
    SOAK_WAIT, /* waits for `most` of a slot's references */
    SOAK_DROP, /* releases a slot's references, ready or not */
    SOAK_CANCEL, /* cancels a slot's calls; how: of manta_cancel() */
    SOAK_KILL, /* kill -9 of worker number n */
    SOAK_ZYGOTE, /* kill -9 of the zygote */
    SOAK_ACTOR, /* n actors */
    SOAK_READY, /* waits for the constructors of a slot's actors */
    SOAK_METHOD, /* n calls of a slot's actors, in turn */
    SOAK_COUNT, /* asks each actor how many calls it has had */
    SOAK_VIA, /* n calls that are handed an actor and call it `width` times */
    SOAK_FIND, /* finds a slot's actors by their names */
    SOAK_END, /* manta_actor_end() */
    SOAK_KILL_ACTOR, /* manta_actor_kill(); how=1: without a restart */
    SOAK_LEAVE, /* releases the handles */
    SOAK_STREAM, /* a stream of n items */
    SOAK_NEXT, /* takes n items of a stream */
    SOAK_CLOSE, /* closes it */
    SOAK_QUEUE, /* `width` producers put n items each into a queue for `most` */
    SOAK_MAP, /* n inputs in chunks of `most` */
    SOAK_GROUP, /* n calls in a placement group of `width` bundles, which is removed then */
    SOAK_HOLD, /* n calls that hold their cores until they may end */
    SOAK_FREE, /* they may end */
    SOAK_THREADS, /* `width` threads of the program that call n times each */
    SOAK_KINDS
} soak_kind;

typedef enum soak_field {
    SOAK_N,
    SOAK_SIZE, /* bytes of an argument */
    SOAK_RESULT, /* bytes of a result */
    SOAK_RESULTS, /* of one call */
    SOAK_DEPTH, /* a call makes `width` calls, as deep as this */
    SOAK_WIDTH,
    SOAK_REFS, /* a result is so many references */
    SOAK_SLEEP, /* microseconds that a function takes */
    SOAK_FAIL, /* 1: the function fails */
    SOAK_CPUS, /* hundredths of a core; of the node: cores */
    SOAK_TOKENS, /* of a resource that the node has */
    SOAK_RETRIES, /* 0: as many as the runtime's default; -1 none; -2 without end */
    SOAK_HOW,
    SOAK_TIMEOUT,
    SOAK_PARALLEL, /* max_concurrency */
    SOAK_RESTARTS,
    SOAK_NAMED,
    SOAK_MOST,
    SOAK_ACTOR_CPUS, /* of the node: cores that actors may hold together; calls have the others */
    SOAK_FILES, /* of the node: RLIMIT_NOFILE; 0: as it is */
    SOAK_STORE, /* of the node: KiB of shared memory; 0: as many as there are */
    SOAK_SPILL, /* of the node: KiB on disk; 0: as many as there are */
    SOAK_INSIDE, /* of the node: without other processes */
    SOAK_FIELDS
} soak_field;

typedef struct soak_op {
    soak_kind kind;
    int id; /* the slot that it fills, from 1 on; 0: none */
    int64_t f[SOAK_FIELDS];
    int n_args, args[SOAK_ARGS];
} soak_op;

typedef struct soak_program {
    int n; /* the node is the first */
    soak_op op[SOAK_OPS + 1];
} soak_program;

bool soak_kind_fills(soak_kind kind);

/* A line, without its end. */
void soak_op_print(const soak_op *op, char *text, size_t size);
void soak_program_print(const soak_program *p, FILE *to);

/* Reads what was printed; lines that begin with # and empty ones are left out. Whether it
 * could be read; else it says on standard error which line could not. */
bool soak_program_read(soak_program *p, FILE *from);

/* generate.c: the program of a seed. */
void soak_program_make(soak_program *p, uint64_t seed);

/* Whether what the runtime does not do better yet (README.md) is wrong. */
extern bool soak_is_strict;

/* ---- random numbers: a seed gives the same everywhere ---- */

uint64_t soak_mix(uint64_t x);
uint64_t soak_random(uint64_t *state);
int64_t soak_below(uint64_t *state, int64_t n); /* 0 .. n - 1 */

#endif
