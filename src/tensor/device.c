/* device.c - what all devices share: programs, and sentences about memory. */
#include "tensor/device.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

void device_close(device *d)
{
    if (d) d->ops->close(d);
}

static size_t rounded(size_t size)
{
    return (size + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
}

manta_status device_alloc(device *d, size_t size, const char *what, dev_addr *out)
{
    manta_status st = d->ops->alloc(d, rounded(size), out);

    if (!st && (st = d->ops->zero(d, *out, rounded(size)))) d->ops->release(d, *out);
    if (st == MANTA_ENOMEM)
        return manta_fail(MANTA_ENOMEM, "%s: %zu MB for %s could not be had, %zu of %zu MB are in use here",
                          d->name, size >> 20, what, d->used >> 20, d->memory >> 20);
    if (!st) d->used += rounded(size);
    return st;
}

void device_release(device *d, dev_addr at, size_t size)
{
    if (!at) return;
    d->ops->release(d, at);
    d->used -= rounded(size);
}

manta_status device_put(device *d, dev_addr to, const void *from, size_t size)
{
    return size ? d->ops->put(d, to, from, size) : MANTA_OK;
}

manta_status device_get(device *d, void *to, dev_addr from, size_t size)
{
    return size ? d->ops->get(d, to, from, size) : MANTA_OK;
}

manta_status device_copy(device *d, dev_addr to, dev_addr from, size_t size)
{
    return size ? d->ops->copy(d, to, from, size) : MANTA_OK;
}

manta_status device_zero(device *d, dev_addr at, size_t size)
{
    return size ? d->ops->zero(d, at, size) : MANTA_OK;
}

manta_status device_wait(device *d)
{
    return d->ops->wait(d);
}

/* ---- programs ---- */

dev_program *program_new(device *d)
{
    dev_program *p = mem_new(sizeof *p);

    p->d = d;
    return p;
}

void program_free(dev_program *p)
{
    if (!p) return;
    if (p->made && p->d->ops->forget) p->d->ops->forget(p->d, p);
    mem_free(p->launches);
    mem_free(p);
}

void program_add(dev_program *p, int kernel, int64_t items, const void *args, size_t size)
{
    dev_launch *l;

    assert(!p->made && size <= DEVICE_ARGS && kernel >= 0 && kernel < DEV_COUNT);
    if (items <= 0) return;
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 32;
        p->launches = mem_resize(p->launches, (size_t)p->cap * sizeof *p->launches);
    }
    l = &p->launches[p->n++];
    *l = (dev_launch){.kernel = kernel, .items = items, .size = (uint32_t)size};
    memcpy(l->args, args, size);
}

manta_status program_play(dev_program *p)
{
    return p->n ? p->d->ops->play(p->d, p) : MANTA_OK;
}
