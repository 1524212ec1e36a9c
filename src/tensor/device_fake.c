/* device_fake.c - a device for tests, whose kernels run on the processor.
 *
 *     what the host sees      [ no access at all ............... ]   a fault on every touch
 *                                     |
 *     + device_fake_shift             v
 *     the same memory         [ read and write ................. ]   bodies of kernels and copies alone
 *
 * Two windows of one size. Addresses that are handed out lie in the first; nothing is ever mapped there, so
 * a host that takes one for a pointer ends with SIGSEGV. Pieces lie apart, and what lies
 * between them is poisoned under AddressSanitizer, as is what was given back, so that a body that leaves its array ends as well. */
#include "tensor/device_fake.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

uintptr_t device_fake_shift;

typedef struct piece {
    dev_addr at;
    size_t size;
} piece;

typedef struct fake {
    device d;
    void *seen, *real; /* the two windows */
    piece *pieces; /* in ascending order of addresses */
    int n, cap;
    void (*run)(const dev_launch *l);
} fake;

static fake *the_one; /* a process has one at a time */

static fake *fake_of(device *d)
{
    return (fake *)d;
}

static void *real_at(dev_addr at)
{
    return (void *)(uintptr_t)(at + device_fake_shift);
}

static void fake_close(device *d)
{
    fake *f = fake_of(d);

    ASAN_UNPOISON_MEMORY_REGION(f->real, d->memory);
    munmap(f->seen, d->memory);
    munmap(f->real, d->memory);
    mem_free(f->pieces);
    mem_free(f);
    the_one = NULL;
}

/* The first gap that is large enough; pieces are a line apart. */
static manta_status fake_alloc(device *d, size_t size, dev_addr *out)
{
    fake *f = fake_of(d);
    dev_addr at = (dev_addr)(uintptr_t)f->seen + DEVICE_ALIGN, end = (dev_addr)(uintptr_t)f->seen + d->memory;
    int i = 0;

    for (; i < f->n && f->pieces[i].at < at + size + DEVICE_ALIGN; i++)
        at = f->pieces[i].at + f->pieces[i].size + DEVICE_ALIGN;
    if (size > d->memory || at + size + DEVICE_ALIGN > end) return MANTA_ENOMEM;
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 16;
        f->pieces = mem_resize(f->pieces, (size_t)f->cap * sizeof *f->pieces);
    }
    memmove(f->pieces + i + 1, f->pieces + i, (size_t)(f->n++ - i) * sizeof *f->pieces);
    f->pieces[i] = (piece){.at = at, .size = size};
    ASAN_POISON_MEMORY_REGION(real_at(at - DEVICE_ALIGN), DEVICE_ALIGN);
    ASAN_POISON_MEMORY_REGION(real_at(at + size), DEVICE_ALIGN);
    ASAN_UNPOISON_MEMORY_REGION(real_at(at), size);
    *out = at;
    return MANTA_OK;
}

static void fake_release(device *d, dev_addr at)
{
    fake *f = fake_of(d);

    for (int i = 0; i < f->n; i++) {
        if (f->pieces[i].at != at) continue;
        memset(real_at(at), 0xff, f->pieces[i].size); /* NaNs for whoever reads on */
        ASAN_POISON_MEMORY_REGION(real_at(at), f->pieces[i].size);
        memmove(f->pieces + i, f->pieces + i + 1, (size_t)(--f->n - i) * sizeof *f->pieces);
        return;
    }
}

static manta_status fake_put(device *d, dev_addr to, const void *from, size_t size)
{
    (void)d;
    memcpy(real_at(to), from, size);
    return MANTA_OK;
}

static manta_status fake_get(device *d, void *to, dev_addr from, size_t size)
{
    (void)d;
    memcpy(to, real_at(from), size);
    return MANTA_OK;
}

static manta_status fake_copy(device *d, dev_addr to, dev_addr from, size_t size)
{
    (void)d;
    memcpy(real_at(to), real_at(from), size);
    return MANTA_OK;
}

static manta_status fake_zero(device *d, dev_addr at, size_t size)
{
    (void)d;
    memset(real_at(at), 0, size);
    return MANTA_OK;
}

static manta_status fake_play(device *d, dev_program *p)
{
    fake *f = fake_of(d);

    for (int i = 0; i < p->n; i++) f->run(&p->launches[i]);
    return MANTA_OK;
}

static manta_status fake_wait(device *d)
{
    (void)d;
    return MANTA_OK;
}

static const device_ops fake_ops = {.close = fake_close,
                                    .alloc = fake_alloc,
                                    .release = fake_release,
                                    .put = fake_put,
                                    .get = fake_get,
                                    .copy = fake_copy,
                                    .zero = fake_zero,
                                    .play = fake_play,
                                    .wait = fake_wait};

manta_status device_fake_open(size_t memory, device **out)
{
    void *seen, *real;
    fake *f;

    if (the_one) return manta_fail(MANTA_EINVAL, "this process has a fake device already");
    memory = (memory + 4095) / 4096 * 4096;
    seen = mmap(NULL, memory, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    real = mmap(NULL, memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (seen == MAP_FAILED || real == MAP_FAILED) {
        if (seen != MAP_FAILED) munmap(seen, memory);
        if (real != MAP_FAILED) munmap(real, memory);
        return manta_fail(MANTA_ENOMEM, "%zu MB of addresses for a fake device could not be had",
                          memory >> 20);
    }
    f = the_one = mem_new(sizeof *f);
    f->d = (device){.ops = &fake_ops, .memory = memory};
    snprintf(f->d.name, sizeof f->d.name, "fake device");
    f->seen = seen;
    f->real = real;
    device_fake_shift = (uintptr_t)real - (uintptr_t)seen;
    f->run = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? device_fake_run_avx2
                                                                             : device_fake_run_reference;
    *out = &f->d;
    return MANTA_OK;
}
