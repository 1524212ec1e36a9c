/* gpu/gpu.h - NVIDIA GPUs as devices of tensor/device.h.
 *
 * The driver is opened by the first call; a process that has called gpu_open() must not
 * fork workers that compute on GPUs. */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include "tensor/device.h"

/* Opens GPU `ordinal` (0 first). *out: the caller's, device_close(). MANTA_EUNSUPPORTED with a sentence that
 * says which is missing: the kernels in this build, the driver, a driver that is new enough, a device. */
manta_status gpu_open(int ordinal, device **out) MANTA_MUST_USE;

/* How many GPUs the driver knows of, without a context: NVML, opened at run time. 0 where there is no driver. */
int gpu_count(void);

/* Whether this build has kernels for GPUs. */
bool gpu_is_built(void);

#endif
