/* absent.c - what stands for GPUs in a build without nvcc. */
#ifndef MANTA_GPU
#include "gpu/gpu.h"

manta_status gpu_open(int ordinal, device **out)
{
    (void)ordinal;
    (void)out;
    return manta_fail(
        MANTA_EUNSUPPORTED,
        "device 'gpu': this build has no kernels for GPUs, expected one that was made where nvcc is");
}

int gpu_count(void)
{
    return 0;
}

bool gpu_is_built(void)
{
    return false;
}
#else
typedef int absent_is_not_needed; /* C wants something in every file */
#endif
