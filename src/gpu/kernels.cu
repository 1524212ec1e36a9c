/* kernels.cu - the bodies of all kernels, for GPUs. A thread takes item after item, so that a launch
 * may have more of them than threads. The kernel of NAME is called manta_NAME. */
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
