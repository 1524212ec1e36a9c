/* manta/tool_bench.h - what `manta bench` measures.
 *
 * For the program `manta` alone: no part of the stable interface (docs/abi.md),
 * not in manta.h, and it may change or go in any version. */
#ifndef MANTA_TOOL_BENCH_H
#define MANTA_TOOL_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_bench_options {
    int threads; /* of each worker */
    int workers; /* processes, each with a batch of its own; 0 or 1: this one */
    int64_t batch, steps;
    bool forward; /* inference only */
    const char *kernels, *precision, *device;
    const char *optimizer; /* NULL: sgd for mnist-cnn, adam for resnet18, else sgd */
} manta_bench_options;

typedef struct manta_bench_result {
    char row[160];
    double images_per_s, ms_per_step; /* of the median step */
    double gflops; /* useful arithmetic per second */
    double gemm_gflops; /* this machine's best f32 matrix product, measured in between */
    double gemm_share;
    double device_ms; /* of a step's kernels, one step behind the other; 0: the processor computes */
    int device_kernels; /* of a step */
} manta_bench_result;

/* Trains a zoo model on made-up data and times it. */
MANTA_API manta_status manta_bench_train(const char *model, const manta_bench_options *o,
                                         manta_bench_result *out) MANTA_MUST_USE;

typedef struct manta_bench_comm_row {
    char row[40]; /* "all-reduce", "all-reduce + sgd, fused", "bare exchange", ... */
    char over[8]; /* "shm", "tcp" (data in the clear) or "tls" */
    int64_t floats;
    double ms; /* mean of the rounds */
    double gb_per_s; /* bytes of one rank's vector per second */
} manta_bench_comm_row;

typedef void manta_bench_comm_fn(void *user, const manta_bench_comm_row *r);

/* Times collectives between this process and a child of it, and calls row()
 * with each result. `only`: rows with this text in their name, or over this;
 * NULL for all, and MANTA_EINVAL where there is none. `rounds`: of each row; 0:
 * as many as take about a second. */
MANTA_API manta_status manta_bench_comm(const char *only, int rounds, manta_bench_comm_fn *row,
                                        void *user) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
