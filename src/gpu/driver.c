/* driver.c - libcuda.so.1, opened at run time. */
#ifdef MANTA_GPU
#include "gpu/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { OLDEST = 12000 /* CUDA 12.0 */ };

typedef CUresult (*find_fn)(const char *symbol, void **pfn, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult *status);

/* cuda.h gives functions that have changed a name with their version ("cuMemAlloc_v2"); the driver wants the
 * plain one. */
static CUresult find_entry(find_fn get, const char *name, void **out)
{
    char plain[64];
    size_t n = strlen(name);

    memcpy(plain, name, n + 1);
    if (n > 3 && !strncmp(plain + n - 3, "_v", 2)) plain[n - 3] = 0;
    return get(plain, out, OLDEST, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
}

#define TEXT_OF(name) #name
#define TEXT(name)    TEXT_OF(name)

static manta_status find_all(void *library, driver *d)
{
    find_fn get;
    int version = 0;
    void *at = dlsym(library, "cuGetProcAddress_v2");

    if (!at) return manta_fail(MANTA_EUNSUPPORTED, "device 'gpu': the NVIDIA driver is older than CUDA 12.0");
    memcpy(&get, &at, sizeof get);
#define DRIVER_FIND(name)                                                                                    \
    if (find_entry(get, TEXT(name), &at) || !at)                                                             \
        return manta_fail(MANTA_EUNSUPPORTED,                                                                \
                          "device 'gpu': the NVIDIA driver has no %s, expected one of CUDA 12.0 or later",   \
                          TEXT(name));                                                                       \
    memcpy(&d->name, &at, sizeof at);
    DRIVER_FUNCTIONS(DRIVER_FIND)
#undef DRIVER_FIND
    if (d->cuDriverGetVersion(&version) || version < OLDEST)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "device 'gpu': the NVIDIA driver is of CUDA %d.%d, expected 12.0 or later",
                          version / 1000, version % 1000 / 10);
    return MANTA_OK;
}

static manta_status start_driver(const driver *d)
{
    const char *why = NULL;
    CUresult r = d->cuInit(0);
    int n = 0;

    if (r == CUDA_ERROR_NO_DEVICE || (!r && !d->cuDeviceGetCount(&n) && n == 0))
        return manta_fail(MANTA_EUNSUPPORTED, "device 'gpu': the NVIDIA driver finds no GPU on this machine");
    if (r) {
        d->cuGetErrorString(r, &why);
        return manta_fail(MANTA_EUNSUPPORTED, "device 'gpu': the NVIDIA driver does not start: %s",
                          why ? why : "it does not say why");
    }
    return MANTA_OK;
}

static manta_status open_driver(driver *d)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "device 'gpu': there is no NVIDIA driver on this machine (libcuda.so.1)");
    TRY(find_all(library, d));
    return start_driver(d);
}

manta_status driver_open(const driver **out)
{
    static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
    static driver found;
    static bool ready;
    manta_status st = MANTA_OK;

    pthread_mutex_lock(&guard);
    if (!ready) st = open_driver(&found);
    ready = !st;
    pthread_mutex_unlock(&guard);
    if (!st) *out = &found;
    return st;
}
#else
typedef int driver_is_not_built;
#endif
