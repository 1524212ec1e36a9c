/* count.c - how many GPUs there are, asked of NVML, which makes no context. */
#ifdef MANTA_GPU
#include <dlfcn.h>
#include <string.h>

#include "gpu/gpu.h"

/* A function of NVML that takes nothing, or a place for a number. */
typedef int (*nvml_plain)(void);
typedef int (*nvml_number)(unsigned *n);

int gpu_count(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    void *init, *count, *end;
    nvml_plain start, stop;
    nvml_number ask;
    unsigned n = 0;

    if (!library) return 0;
    init = dlsym(library, "nvmlInit_v2");
    count = dlsym(library, "nvmlDeviceGetCount_v2");
    end = dlsym(library, "nvmlShutdown");
    if (init && count && end) {
        memcpy(&start, &init, sizeof start);
        memcpy(&ask, &count, sizeof ask);
        memcpy(&stop, &end, sizeof stop);
        if (!start()) {
            if (ask(&n)) n = 0;
            stop();
        }
    }
    dlclose(library);
    return (int)n;
}

bool gpu_is_built(void)
{
    return true;
}
#else
typedef int count_is_not_built;
#endif
