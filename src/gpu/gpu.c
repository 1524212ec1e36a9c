/* gpu.c - a GPU as a device: memory, copies, programs as CUDA graphs.
 *
 *   put    host bytes -> a piece of a pinned ring -> device   the ring is a few MB; a piece is used again
 *                                                            when the copy that read it is through
 *   play   the first time: the launches are captured into a graph; then the graph is launched
 *   get    device -> pinned piece -> host                     waits for the stream
 *
 * All on one stream, in the order asked for. */
#ifdef MANTA_GPU
#include "gpu/gpu.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/driver.h"
#include "gpu/image.h"
#include "tensor/device_mma.h"
#include "tensor/device_tiles.h"

enum {
    THREADS = 128, /* of a block, where items have a thread each */
    RING_BYTES = 8 << 20,
    RING_HALF = RING_BYTES / 2,
};

typedef struct gpu {
    device d;
    const driver *cu;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUstream stream;
    CUfunction kernels[DEV_COUNT];
    char *ring; /* pinned; two halves take turns */
    CUevent passed[2]; /* the copies out of a half are through */
    bool waits[2]; /* the event of that half was recorded */
    size_t ring_at;
    int half;
    int most_blocks; /* of a launch of threads that take item after item */
    manta_error broken; /* code 0: it works */
} gpu;

static const char *const names[] = {
#define NAME(name)            "manta_" #name,
#define TILE_NAME(name, size) "manta_" #name "_" #size,
    DEV_KERNELS(NAME) DEV_TILE_KERNELS(TILE_NAME) DEV_MMA_KERNELS(TILE_NAME) DEV_SUM_KERNELS(NAME)
#undef NAME
#undef TILE_NAME
};

static gpu *gpu_of(device *d)
{
    return (gpu *)d;
}

/* The first failure stays: what comes after it means nothing. */
static manta_status fail_call(gpu *g, CUresult r, const char *what)
{
    const char *name = NULL, *why = NULL;

    g->cu->cuGetErrorName(r, &name);
    g->cu->cuGetErrorString(r, &why);
    manta_status st = manta_fail(MANTA_EIO, "%s: %s failed: %s (%s)", g->d.name, what, why ? why : "unknown",
                                 name ? name : "?");
    manta_error_get(&g->broken);
    return st;
}

#define CALL(g, what, call)                                                                                  \
    do {                                                                                                     \
        CUresult result_ = (g)->cu->call;                                                                    \
        if (result_) return fail_call((g), result_, (what));                                                 \
    } while (0)

static manta_status take_context(gpu *g)
{
    if (g->broken.code) return manta_error_raise(&g->broken);
    CALL(g, "taking the context", cuCtxSetCurrent(g->context));
    return MANTA_OK;
}

/* ---- memory ---- */

static manta_status gpu_alloc(device *d, size_t size, dev_addr *out)
{
    gpu *g = gpu_of(d);
    CUdeviceptr at = 0;
    CUresult r;

    TRY(take_context(g));
    r = g->cu->cuMemAlloc(&at, size);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) return MANTA_ENOMEM;
    if (r) return fail_call(g, r, "memory");
    *out = at;
    return MANTA_OK;
}

static void gpu_release(device *d, dev_addr at)
{
    gpu *g = gpu_of(d);

    if (!take_context(g)) (void)g->cu->cuMemFree((CUdeviceptr)at);
}

/* A piece of the ring; of the other half when this one is full, whose copies must be through. */
static manta_status take_piece(gpu *g, size_t size, char **out)
{
    if (g->ring_at + size > RING_HALF) {
        CALL(g, "an event", cuEventRecord(g->passed[g->half], g->stream));
        g->waits[g->half] = true;
        g->half = !g->half;
        g->ring_at = 0;
        if (g->waits[g->half]) CALL(g, "waiting for a copy", cuEventSynchronize(g->passed[g->half]));
        g->waits[g->half] = false;
    }
    *out = g->ring + (size_t)g->half * RING_HALF + g->ring_at;
    g->ring_at += (size + 63) / 64 * 64;
    return MANTA_OK;
}

static manta_status gpu_put(device *d, dev_addr to, const void *from, size_t size)
{
    gpu *g = gpu_of(d);

    TRY(take_context(g));
    for (size_t at = 0, n; at < size; at += n) {
        char *piece = NULL;
        n = size - at < RING_HALF ? size - at : RING_HALF;
        TRY(take_piece(g, n, &piece));
        memcpy(piece, (const char *)from + at, n);
        CALL(g, "a copy to the device", cuMemcpyHtoDAsync((CUdeviceptr)(to + at), piece, n, g->stream));
    }
    return MANTA_OK;
}

static manta_status gpu_wait(device *d)
{
    gpu *g = gpu_of(d);

    TRY(take_context(g));
    CALL(g, "computing", cuStreamSynchronize(g->stream));
    return MANTA_OK;
}

static manta_status gpu_get(device *d, void *to, dev_addr from, size_t size)
{
    gpu *g = gpu_of(d);

    TRY(take_context(g));
    for (size_t at = 0, n; at < size; at += n) {
        char *piece = NULL;
        n = size - at < RING_HALF ? size - at : RING_HALF;
        TRY(take_piece(g, n, &piece));
        CALL(g, "a copy from the device", cuMemcpyDtoHAsync(piece, (CUdeviceptr)(from + at), n, g->stream));
        CALL(g, "computing", cuStreamSynchronize(g->stream));
        memcpy((char *)to + at, piece, n);
    }
    return MANTA_OK;
}

static manta_status gpu_copy(device *d, dev_addr to, dev_addr from, size_t size)
{
    gpu *g = gpu_of(d);

    TRY(take_context(g));
    CALL(g, "a copy", cuMemcpyDtoDAsync((CUdeviceptr)to, (CUdeviceptr)from, size, g->stream));
    return MANTA_OK;
}

static manta_status gpu_zero(device *d, dev_addr at, size_t size)
{
    gpu *g = gpu_of(d);

    TRY(take_context(g));
    CALL(g, "clearing memory", cuMemsetD8Async((CUdeviceptr)at, 0, size, g->stream));
    return MANTA_OK;
}

/* ---- programs ---- */

static manta_status launch_kernel(gpu *g, dev_launch *l)
{
    int threads = dev_kernel_threads(l->kernel);
    int64_t blocks = l->items;
    void *args[2] = {l->args, &l->items};

    if (!threads) {
        threads = THREADS;
        blocks = (l->items + THREADS - 1) / THREADS;
        if (blocks > g->most_blocks) blocks = g->most_blocks;
    }
    CALL(g, names[l->kernel],
         cuLaunchKernel(g->kernels[l->kernel], (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                        (unsigned)dev_kernel_shared(l->kernel), g->stream, args, NULL));
    return MANTA_OK;
}

static manta_status capture_graph(gpu *g, dev_program *p)
{
    CUgraph graph = NULL;
    CUgraphExec made = NULL;
    CUresult r;
    manta_status st = MANTA_OK;

    CALL(g, "a graph", cuStreamBeginCapture(g->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < p->n && !st; i++) st = launch_kernel(g, &p->launches[i]);
    r = g->cu->cuStreamEndCapture(g->stream, &graph);
    if (!st && !r) r = g->cu->cuGraphInstantiateWithFlags(&made, graph, 0);
    if (graph) (void)g->cu->cuGraphDestroy(graph);
    if (st) return st;
    if (r) return fail_call(g, r, "a graph");
    p->made = made;
    return MANTA_OK;
}

static manta_status gpu_play(device *d, dev_program *p)
{
    gpu *g = gpu_of(d);

    TRY(take_context(g));
    if (!p->made) TRY(capture_graph(g, p));
    CALL(g, "a graph", cuGraphLaunch(p->made, g->stream));
    return MANTA_OK;
}

static void gpu_forget(device *d, dev_program *p)
{
    gpu *g = gpu_of(d);

    if (!take_context(g)) (void)g->cu->cuGraphExecDestroy(p->made);
    p->made = NULL;
}

/* ---- opening and closing ---- */

static void gpu_close(device *d)
{
    gpu *g = gpu_of(d);

    if (g->context && !g->cu->cuCtxSetCurrent(g->context)) {
        if (g->stream) (void)g->cu->cuStreamDestroy(g->stream);
        for (int i = 0; i < 2; i++) {
            if (g->passed[i]) (void)g->cu->cuEventDestroy(g->passed[i]);
        }
        if (g->ring) (void)g->cu->cuMemFreeHost(g->ring);
        if (g->module) (void)g->cu->cuModuleUnload(g->module);
        (void)g->cu->cuCtxSetCurrent(NULL);
    }
    if (g->context) (void)g->cu->cuDevicePrimaryCtxRelease(g->device);
    mem_free(g);
}

static const device_ops gpu_ops = {.close = gpu_close,
                                   .alloc = gpu_alloc,
                                   .release = gpu_release,
                                   .put = gpu_put,
                                   .get = gpu_get,
                                   .copy = gpu_copy,
                                   .zero = gpu_zero,
                                   .play = gpu_play,
                                   .wait = gpu_wait,
                                   .forget = gpu_forget};

static manta_status find_device(gpu *g, int ordinal)
{
    int n = 0, major = 0, minor = 0, processors = 0;

    CALL(g, "counting devices", cuDeviceGetCount(&n));
    if (ordinal < 0 || ordinal >= n)
        return manta_fail(MANTA_EUNSUPPORTED, "device 'gpu': there is no GPU %d, expected 0 to %d", ordinal,
                          n - 1);
    CALL(g, "a device", cuDeviceGet(&g->device, ordinal));
    CALL(g, "a device's name", cuDeviceGetName(g->d.name, (int)sizeof g->d.name, g->device));
    CALL(g, "a device's memory", cuDeviceTotalMem(&g->d.memory, g->device));
    CALL(g, "a device",
         cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, g->device));
    CALL(g, "a device",
         cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, g->device));
    CALL(g, "a device",
         cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g->device));
    if (major < 8)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "device 'gpu': %s is of compute capability %d.%d, expected 8.0 or later", g->d.name,
                          major, minor);
    g->most_blocks = processors * 64;
    return MANTA_OK;
}

static manta_status start_gpu(gpu *g)
{
    void *ring = NULL;

    CALL(g, "making a context", cuDevicePrimaryCtxRetain(&g->context, g->device));
    CALL(g, "taking the context", cuCtxSetCurrent(g->context));
    CALL(g, "loading the kernels", cuModuleLoadData(&g->module, gpu_image));
    for (int i = 0; i < DEV_COUNT; i++) {
        CALL(g, names[i], cuModuleGetFunction(&g->kernels[i], g->module, names[i]));
        if (!dev_kernel_shared(i)) continue;
        CALL(g, names[i],
             cuFuncSetAttribute(g->kernels[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                (int)dev_kernel_shared(i)));
    }
    CALL(g, "a stream", cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) CALL(g, "an event", cuEventCreate(&g->passed[i], CU_EVENT_DISABLE_TIMING));
    CALL(g, "pinned memory", cuMemHostAlloc(&ring, RING_BYTES, 0));
    g->ring = ring;
    return MANTA_OK;
}

manta_status gpu_open(int ordinal, device **out)
{
    const driver *cu;
    gpu *g;
    manta_status st;

    TRY(driver_open(&cu));
    g = mem_new(sizeof *g);
    g->d.ops = &gpu_ops;
    g->cu = cu;
    snprintf(g->d.name, sizeof g->d.name, "GPU %d", ordinal);
    if ((st = find_device(g, ordinal)) || (st = start_gpu(g))) {
        gpu_close(&g->d);
        return st;
    }
    *out = &g->d;
    return MANTA_OK;
}
#else
typedef int gpu_is_not_built;
#endif
