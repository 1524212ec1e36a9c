/* gpu/driver.h - the functions of NVIDIA's driver, found at run time.
 *
 * libcuda.so.1 is opened by the first driver_open() of a process and stays; the
 * functions are those that cuGetProcAddress() gives for CUDA 12.0, which is the oldest driver
 * that is asked for. Any thread may call it. */
#ifndef GPU_DRIVER_H
#define GPU_DRIVER_H

#include <cuda.h>

#include "base/status.h"

#define DRIVER_FUNCTIONS(F)                                                                                  \
    F(cuInit)                                                                                                \
    F(cuDriverGetVersion)                                                                                    \
    F(cuDeviceGetCount)                                                                                      \
    F(cuDeviceGet)                                                                                           \
    F(cuDeviceGetName)                                                                                       \
    F(cuDeviceGetAttribute)                                                                                  \
    F(cuDeviceTotalMem)                                                                                      \
    F(cuDevicePrimaryCtxRetain)                                                                              \
    F(cuDevicePrimaryCtxRelease)                                                                             \
    F(cuCtxSetCurrent)                                                                                       \
    F(cuModuleLoadData)                                                                                      \
    F(cuModuleUnload)                                                                                        \
    F(cuModuleGetFunction)                                                                                   \
    F(cuFuncSetAttribute)                                                                                    \
    F(cuMemAlloc)                                                                                            \
    F(cuMemFree)                                                                                             \
    F(cuMemHostAlloc)                                                                                        \
    F(cuMemFreeHost)                                                                                         \
    F(cuMemcpyHtoDAsync)                                                                                     \
    F(cuMemcpyDtoHAsync)                                                                                     \
    F(cuMemcpyDtoDAsync)                                                                                     \
    F(cuMemsetD8Async)                                                                                       \
    F(cuStreamCreate)                                                                                        \
    F(cuStreamDestroy)                                                                                       \
    F(cuStreamSynchronize)                                                                                   \
    F(cuStreamBeginCapture)                                                                                  \
    F(cuStreamEndCapture)                                                                                    \
    F(cuGraphInstantiateWithFlags)                                                                           \
    F(cuGraphLaunch)                                                                                         \
    F(cuGraphExecDestroy)                                                                                    \
    F(cuGraphDestroy)                                                                                        \
    F(cuEventCreate)                                                                                         \
    F(cuEventDestroy)                                                                                        \
    F(cuEventRecord)                                                                                         \
    F(cuEventSynchronize)                                                                                    \
    F(cuLaunchKernel)                                                                                        \
    F(cuGetErrorName)                                                                                        \
    F(cuGetErrorString)

/* A pointer to each, by its own name. */
typedef struct driver {
#define DRIVER_MEMBER(name) __typeof__(&name) name;
    DRIVER_FUNCTIONS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
} driver;

/* The driver, ready for devices. MANTA_EUNSUPPORTED: there is none, it is too old, or it finds no device. */
manta_status driver_open(const driver **out) MANTA_MUST_USE;

#endif
