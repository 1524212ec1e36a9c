/* tensor/body.h - how the body of a device's kernel is written.
 *
 * A body is C that is also C++: it is compiled by nvcc for GPUs (src/gpu/kernels.cu)
 * and by the C compiler for the fake device (device_fake.c). It is a function of its
 * arguments and of the number of one item,
 *
 *     BODY(axpby)(const axpby_args *a, int64_t i)
 *     {
 *         const float *x = AT(const float, a->x);
 *         ...
 *     }
 *
 * that writes what belongs to this item and nothing that another item reads or
 * writes. Items run in any order and at the same time; what must be added up in an order is
 * added by one item, or left by one kernel for the next. So a body is exact by construction:
 * the order of the arithmetic stands in it, and is that of the processor's kernels.
 *
 * Rules, besides those of src/tensor/README.md:
 *   1. An address becomes a pointer by AT(type, address) alone, and 0 becomes NULL.
 *   2. fma is vm_fma(), double or float division and square roots are the plain ones; no
 *      other function of libm; vmath.h for the rest.
 *   3. No memory, no recursion, no static data; arrays in a body have constant sizes.
 *   4. Neighbouring items read and write neighbouring elements where that can be chosen.
 *
 * A *block body* is for kernels whose items can share what they read (body_tile.inc). Its item is a block: a
 * rectangle of outputs, worked on by a fixed number of threads that have registers of their own and one piece of
 * shared memory. It is three functions,
 *
 *     int32_t NAME_begin(args, block, thread, regs)     sets up a thread's registers; how many phases follow,
 *                                                       the same number for all threads of the block
 *     void NAME_phase(args, phase, thread, regs, shared)
 *     void NAME_end(args, thread, regs)                 writes what belongs to the thread
 *
 * and a barrier stands before the first phase and behind every one:
 *
 *     thread 0   begin | phase 0 | phase 1 | ... | end
 *     thread 1   begin | phase 0 | phase 1 | ... | end
 *
 * Within a phase no thread reads what another writes, nor do two write the same; what one leaves in shared
 * memory the others read in a later phase. Shared memory is undefined in the first one. What is to come from global
 * to shared memory is asked for by body_bring(to, from) or body_bring_four(), on multiples of 16 bytes: it is there
 * BODY_LAG phases later (MMA_LAG_SIZE, of kernels on tensor cores), and nobody touches its place in the meantime. nvcc makes a loop with
 * __syncthreads() of it, and registers of the registers; the fake device runs each phase for one thread after
 * the other, forwards and backwards in turn, which is the same for whoever keeps to this. The rules above hold,
 * and:
 *   5. A thread's accumulators are indexed by numbers that the compiler knows, in loops marked UNROLLED:
 *      else they lie in memory.
 *   6. A chain is one thread's, from its first element to its last: blocks share outputs out, never a sum. */
#ifndef TENSOR_BODY_H
#define TENSOR_BODY_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/array.h>

#include "tensor/device_kernels.h"
#include "tensor/vmath.h"

#ifdef __CUDACC__
#define BODY_FN           static __device__ __forceinline__
#define AT(type, address) ((type *)(address))
#else
#define BODY_FN           static inline
/* Defined by the includer: where the processor finds what lies at an address. */
static inline void *body_at(dev_addr address);
#define AT(type, address) ((type *)body_at(address))
#endif

#define BODY(name) BODY_FN void name##_body

enum { BODY_LAG = 3 }; /* phases until something that was asked for is there */

/* Before a loop: its rounds stand one behind the other in the code, or do not. */
#ifdef __CUDACC__
#define UNROLLED     _Pragma("unroll")
#define NOT_UNROLLED _Pragma("unroll 1")

BODY_FN void body_bring(float *to, const float *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)));
}

BODY_FN void body_bring_four(float *to, const float *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)));
}

BODY_FN void body_bring_or_zero(float *to, const float *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0));
}

BODY_FN void body_bring_four_or_zero(float *to, const float *from, bool there)
{
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0));
}

BODY_FN uint32_t body_draw(uint32_t *ticket)
{
    __threadfence();
    uint32_t drawn = atomicAdd(ticket, 1u);
    __threadfence();
    return drawn;
}

BODY_FN float body_fresh(const float *at)
{
    return __ldcg(at);
}
#else
#define UNROLLED
#define NOT_UNROLLED
/* Defined by the includer. */
static inline void body_bring(float *to, const float *from);
static inline void body_bring_four(float *to, const float *from);
/* Bring one or four floats from `from` when it is `there`, else as many zeros: `from` is an address then too, and
 * nothing is read there. */
static inline void body_bring_or_zero(float *to, const float *from, bool there);
static inline void body_bring_four_or_zero(float *to, const float *from, bool there);

/* How many have drawn before. What the block wrote in earlier phases is seen by whoever draws after it. Which block comes last is chance: what it does must not depend on it. */
static inline uint32_t body_draw(uint32_t *ticket)
{
    return (*ticket)++;
}

/* What another block has published. */
static inline float body_fresh(const float *at)
{
    return *at;
}
#endif

/* Four neighbours on a multiple of sixteen bytes. */
typedef struct body_four {
    float e[4];
} body_four;

BODY_FN body_four body_read_four(const float *at)
{
    body_four v;

#ifdef __CUDACC__
    float4 f = *(const float4 *)at;
    v.e[0] = f.x;
    v.e[1] = f.y;
    v.e[2] = f.z;
    v.e[3] = f.w;
#else
    for (int i = 0; i < 4; i++) v.e[i] = at[i];
#endif
    return v;
}

BODY_FN void body_write_four(float *at, body_four v)
{
#ifdef __CUDACC__
    *(float4 *)at = make_float4(v.e[0], v.e[1], v.e[2], v.e[3]);
#else
    for (int i = 0; i < 4; i++) at[i] = v.e[i];
#endif
}

#endif
