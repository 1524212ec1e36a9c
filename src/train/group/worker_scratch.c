/* worker_scratch.c - the memory that a worker computes in. */
#include "train/group/worker_scratch.h"

#include "base/mem.h"
#include "os/shm.h"

/* So many bytes of the scratch memory, there and mapped; NULL: not to be had. Whoever dies
 * in the middle has not said that they are made. */
static void *take_scratch(const worker_scratch *d, size_t size)
{
    void *at;

    if (d->fd < 0) return NULL;
    if (atomic_load(d->made) < size) {
        if (shm_grow(d->fd, size)) return NULL;
        atomic_store(d->made, size);
    }
    if (shm_map(d->fd, size, true, &at)) return NULL;
    mem_touch(at, size);
    return at;
}

static void give_back(worker_scratch *d)
{
    if (d->size) {
        shm_unmap(d->at, d->size);
    } else {
        mem_try_free(d->at);
    }
}

void *worker_scratch_block(void *ctx, size_t size)
{
    size_t page = shm_large_page(), whole = (size + page - 1) / page * page;
    worker_scratch *d = ctx;
    void *at = size < page || whole < size ? NULL : take_scratch(d, whole);

    if (!at) {
        whole = 0;
        at = mem_try_raw(size);
    }
    if (!at) return NULL;
    give_back(d);
    d->at = at;
    d->size = whole;
    return at;
}
