/* train/trainer/trainer_shared.h - the memory that a trainer and its workers share.
 *
 *   | control | ring of rank 0 | ... | slots of rank 0 | ... |
 *
 * A memfd of the driver's, which workers open through /proc. Its rings carry
 * reports, one writer and one reader each; its slots carry what ranks add up,
 * two per rank that alternate, so that one meeting per exchange is enough: who
 * comes to meeting k + 1 has read all of meeting k.
 *
 * A rank that has ended stays at the number of meetings it came to; for all
 * others that is the same number, so all leave it out of the same meetings.
 *
 * Nothing in it is an address, nor is one in what a worker is told (trainer_task): the
 * worker may be another program than the driver. */
#ifndef TRAIN_TRAINER_TRAINER_SHARED_H
#define TRAIN_TRAINER_TRAINER_SHARED_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/trainer.h>

#include "os/eventcount.h"
#include "os/file.h"
#include "train/log/rank_logs.h"
#include "train/trainer/trainer_functions.h"

enum {
    TRAINER_RANKS = 256,
    TRAINER_RING = 128, /* reports */
    TRAINER_NUMBERS = 512, /* doubles in a slot's head */
    TRAINER_DATASETS = 16,
    TRAINER_COLUMNS = 16, /* of a dataset in the store */
    TRAINER_NOTES = 1 << 20, /* bytes of a checkpoint's notes */
};

#define TRAINER_SLOT ((uint64_t)1 << 34) /* bytes of address for a slot; only what is used is memory */

typedef enum rank_state { RANK_STARTING, RANK_RUNNING, RANK_ENDED } rank_state;

typedef enum report_kind {
    REPORT_METRICS,
    REPORT_CHIEF, /* a checkpoint of this rank alone: files in the folder of `round`, -1, -2, ... */
    REPORT_PART /* its part of a checkpoint of the group: files in the folder of `round`, 0, 1, ... */
} report_kind;

/* The files that belong to a report. Set by who reports, and from FILES_COMING on by
 * the thread that brings them to disk. Until then the driver takes neither the report
 * nor those behind it. */
typedef enum report_files { FILES_NONE, FILES_COMING, FILES_THERE, FILES_LOST } report_files;

typedef struct trainer_files {
    _Atomic uint32_t state; /* report_files */
    file_sum sum; /* with FILES_THERE: of the one file, which who wrote it has summed up; size 0: not known */
} trainer_files;

typedef struct trainer_report {
    report_kind kind;
    int64_t round; /* names the folder of files */
    int64_t epoch, step, iterations;
    bool has_place; /* epoch and step are said; else a report stands for an epoch */
    int n;
    double value[MANTA_MAX_METRICS];
    char name[MANTA_MAX_METRICS][64];
    uint64_t others[TRAINER_RANKS]; /* REPORT_CHIEF: how many reports each rank had made by then */
} trainer_report;

typedef struct trainer_ring {
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t taken;
    trainer_files files[TRAINER_RING]; /* of each */
    trainer_report at[TRAINER_RING];
} trainer_ring;

typedef struct trainer_rank {
    _Alignas(64) _Atomic uint32_t state; /* rank_state */
    _Atomic uint32_t pid;
    _Atomic uint32_t listens; /* its loop has asked whether it should stop */
    _Atomic uint64_t meetings; /* come to */
} trainer_rank;

typedef struct trainer_control {
    int world;
    /* Two event words (os/eventcount.h): the driver has reason to look; a rank has come to a
     * meeting or has ended, there is room in a ring, or all is over. */
    _Alignas(64) _Atomic uint32_t wake;
    _Atomic uint32_t driver_asleep;
    _Alignas(64) _Atomic uint32_t meeting;
    _Atomic uint32_t meeting_sleepers; /* ranks */
    _Atomic uint32_t over; /* the attempt has failed: leave */
    _Atomic uint32_t stop; /* the run is to end: checkpoint, then return */
    trainer_rank ranks[TRAINER_RANKS];
} trainer_control;

/* Ranks that wait at a meeting, or for room, have reason to look. */
static inline void trainer_wake_ranks(trainer_control *c)
{
    atomic_fetch_add(&c->meeting, 1);
    (void)eventword_wake(&c->meeting, &c->meeting_sleepers, INT_MAX, true);
}

/* Sleeps until the ranks have reason to look that came after `seen`, or the deadline. */
static inline void trainer_rank_sleep(trainer_control *c, uint32_t seen, int64_t deadline)
{
    (void)eventword_sleep(&c->meeting, seen, &c->meeting_sleepers, deadline, true);
}

typedef struct trainer_memory {
    int fd;
    trainer_control *c;
    trainer_ring *rings;
    size_t mapped; /* control and rings */
    int world;
} trainer_memory;

static inline size_t trainer_round_up(size_t n)
{
    return (n + 4095) & ~(size_t)4095;
}

/* Bytes before the slots. */
static inline size_t trainer_head(int world)
{
    return trainer_round_up(sizeof(trainer_control)) + trainer_round_up(sizeof(trainer_ring) * (size_t)world);
}

/* Where slot `turn` (0 or 1) of a rank lies in the memory. */
static inline uint64_t trainer_slot_at(int world, int rank, int turn)
{
    return trainer_head(world) + ((uint64_t)rank * 2 + (uint64_t)turn) * TRAINER_SLOT;
}

/* What a worker is told at its start: plain memory, without an address in it, since the
 * worker may be another program (trainer_functions.h). Numbers of descriptors are those of
 * the process `driver`. */
typedef struct trainer_task {
    char version[16]; /* manta_version() of the driver: the same layout of all of this */
    char loop[FUNCTION_NAME];
    int rank, world, attempt, driver, fd, threads;
    int most; /* ranks that the memory has room for */
    uint64_t seed;
    rank_log_task log; /* its pipe: a descriptor of the driver */
    char name[256], run[1024], checkpoint[1100];
    char local[1024]; /* run_local() */
} trainer_task;

/* What a worker is told of a dataset. Behind it come the bytes for its maker, when it has
 * one, or its arrays in the store. */
typedef struct trainer_dataset {
    char name[64];
    char spec[512];
    char maker[FUNCTION_NAME]; /* "": none */
    bool whole, shuffle;
    int n_columns; /* of one in the store: so many arrays follow */
    char columns[TRAINER_COLUMNS][64];
} trainer_dataset;

#endif
