/* kernels.cu - the bodies of all kernels, for GPUs. A thread takes item after item, so that a launch
 * may have more of them than threads; a block of a kernel in tiles takes the one tile that has its number. The
 * kernel of NAME is called manta_NAME. */
#include "tensor/body.h"

#include "tensor/body_all.inc"

#define KERNEL(name)                                                                                         \
    extern "C" __global__ void __launch_bounds__(128)                                                        \
        manta_##name(const __grid_constant__ name##_args a, int64_t items)                                   \
    {                                                                                                        \
        int64_t step = (int64_t)gridDim.x * blockDim.x;                                                      \
        for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < items; i += step)               \
            name##_body(&a, i);                                                                              \
    }

DEV_KERNELS(KERNEL)

/* What was brought lag - 1 phases ago is there, for all threads. */
template <int lag> static __device__ __forceinline__ void finish_phase()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group %0;" ::"n"(lag - 1) : "memory");
    __syncthreads();
}

#define TILE_KERNEL(name, size)                                                                              \
    extern "C" __global__ void __launch_bounds__(TILE_THREADS_##size, 1)                                     \
        manta_##name##_##size(const __grid_constant__ name##_args a, int64_t items)                          \
    {                                                                                                        \
        __shared__ __align__(16) name##_##size##_shared shared;                                              \
        int thread = (int)threadIdx.x;                                                                       \
        name##_##size##_regs r;                                                                              \
        int32_t phases = name##_##size##_begin(&a, (int64_t)blockIdx.x, thread, &r);                         \
        __syncthreads();                                                                                     \
        for (int32_t p = 0; p < phases; p++) {                                                               \
            name##_##size##_phase(&a, p, thread, &r, &shared);                                               \
            finish_phase<BODY_LAG>();                                                                        \
        }                                                                                                    \
        name##_##size##_end(&a, thread, &r);                                                                 \
    }

DEV_TILE_KERNELS(TILE_KERNEL)

/* Shared memory of more than 48 KB is asked for at the launch. */
#define MMA_KERNEL(name, size)                                                                               \
    extern "C" __global__ void __launch_bounds__(MMA_THREADS_##size, 2)                                      \
        manta_##name##_##size(const __grid_constant__ mma_args a, int64_t items)                             \
    {                                                                                                        \
        extern __shared__ __align__(16) char dynamic[];                                                      \
        name##_##size##_shared *shared = (name##_##size##_shared *)dynamic;                                  \
        int thread = (int)threadIdx.x;                                                                       \
        name##_##size##_regs r;                                                                              \
        int32_t phases = name##_##size##_begin(&a, (int64_t)blockIdx.x, thread, &r);                         \
        for (int32_t p = 0; p < phases; p++) {                                                               \
            name##_##size##_phase(&a, p, thread, &r, shared);                                                \
            finish_phase<MMA_LAG_##size>();                                                                  \
        }                                                                                                    \
        name##_##size##_end(&a, thread, &r);                                                                 \
    }

DEV_MMA_KERNELS(MMA_KERNEL)

#define SUM_KERNEL(name)                                                                                     \
    extern "C" __global__ void __launch_bounds__(SUM_THREADS)                                                \
        manta_##name(const __grid_constant__ name##_args a, int64_t items)                                   \
    {                                                                                                        \
        __shared__ name##_shared shared;                                                                     \
        int thread = (int)threadIdx.x;                                                                       \
        name##_regs r;                                                                                       \
        int32_t phases = name##_begin(&a, (int64_t)blockIdx.x, thread, &r);                                  \
        for (int32_t p = 0; p < phases; p++) {                                                               \
            name##_phase(&a, p, thread, &r, &shared);                                                        \
            __syncthreads();                                                                                 \
        }                                                                                                    \
    }

DEV_SUM_KERNELS(SUM_KERNEL)
