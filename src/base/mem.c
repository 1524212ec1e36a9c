/* mem.c - allocation over the C library's, counted.
 *
 * Both families end in free(); what differs is who chose the size. The counts
 * are relaxed atomics: they order nothing, they only have to add up. */
#include "base/mem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    MEM_ALIGN = 64,
    MEM_HUGE = 2 << 20, /* a large page, */
    MEM_HUGE_FROM = 2 * MEM_HUGE /* and from which size on a block is given whole ones */
};

/* No block is larger than this (1 TiB). Such sizes come from corrupt headers, and
 * some allocators end the program when asked for them. */
static const size_t MEM_MAX = (size_t)1 << 40;

static _Atomic int64_t live;
static _Atomic int64_t made;
static _Atomic int64_t fail_countdown; /* 0: off; 1: the next call fails */
static _Atomic int fail_sticky;
static _Atomic int64_t failures;

static void *count_in(void *p)
{
    if (p) atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    if (p) atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
    return p;
}

static void count_out(void *p)
{
    if (p) atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
}

_Noreturn static void out_of_memory(size_t size)
{
    fprintf(stderr, "manta: out of memory: %zu bytes of control memory could not be had\n", size);
    abort();
}

void *mem_new(size_t size)
{
    void *p = calloc(1, size ? size : 1);

    if (!p) out_of_memory(size);
    return count_in(p);
}

void *mem_resize(void *p, size_t size)
{
    void *q = realloc(p, size ? size : 1);

    if (!q) out_of_memory(size);
    if (!p) return count_in(q);
    atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
    return q;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

char *mem_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = mem_new(len + 1);

    memcpy(copy, s, len);
    return copy;
}

char *mem_printf(const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    char *text = mem_new((size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

void mem_free(void *p)
{
    count_out(p);
    free(p);
}

/* Whether the test hook wants this call to fail. */
static int must_fail(void)
{
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) <= 0) return 0;
    /* Under several threads each call takes its own number. */
    int64_t n = atomic_fetch_sub_explicit(&fail_countdown, 1, memory_order_relaxed);
    if (n != 1) return 0;
    if (atomic_load_explicit(&fail_sticky, memory_order_relaxed))
        atomic_store_explicit(&fail_countdown, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&failures, 1, memory_order_relaxed);
    return 1;
}

/* Large blocks lie on large pages where the system gives them: arithmetic that
 * goes through a matrix row by row touches a page per row, and a missing
 * translation costs a virtual machine two walks. Only a hint, so its failure is
 * nothing to anybody. */
static void want_huge_pages(void *p, size_t size)
{
#ifdef MADV_HUGEPAGE
    (void)madvise(p, size / MEM_HUGE * MEM_HUGE, MADV_HUGEPAGE);
#else
    (void)p, (void)size;
#endif
}

void mem_touch(void *at, size_t n)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = 4096, from = (uintptr_t)at & ~(page - 1);

    (void)madvise((void *)from, (uintptr_t)at + n - from, MADV_POPULATE_WRITE);
#else
    (void)at, (void)n;
#endif
}

void *mem_try_raw(size_t size)
{
    const bool huge = size >= MEM_HUGE_FROM;
    void *p = NULL;

    if (size >= MEM_MAX || must_fail()) return NULL;
    if (posix_memalign(&p, huge ? MEM_HUGE : MEM_ALIGN, size ? size : 1)) return NULL;
    if (huge) want_huge_pages(p, size);
    return count_in(p);
}

void *mem_try(size_t size)
{
    void *p = mem_try_raw(size);

    if (p) memset(p, 0, size);
    return p;
}

void mem_try_free(void *p)
{
    mem_free(p);
}

manta_status mem_try_array(int64_t n, size_t size, const char *what, void **out)
{
    size_t bytes;

    if (n < 0 || __builtin_mul_overflow((uint64_t)n, size, &bytes))
        return manta_fail(MANTA_ENOMEM, "%s: %lld times %zu bytes is no size memory can have", what,
                          (long long)n, size);
    void *p = mem_try(bytes);
    if (!p) return manta_fail(MANTA_ENOMEM, "%s: %zu bytes of memory could not be had", what, bytes);
    *out = p;
    return MANTA_OK;
}

void mem_fail_at(int64_t n, int sticky)
{
    atomic_store_explicit(&failures, 0, memory_order_relaxed);
    atomic_store_explicit(&fail_sticky, sticky, memory_order_relaxed);
    atomic_store_explicit(&fail_countdown, n, memory_order_relaxed);
}

int64_t mem_failures(void)
{
    return atomic_load_explicit(&failures, memory_order_relaxed);
}

int64_t mem_live(void)
{
    return atomic_load_explicit(&live, memory_order_relaxed);
}

int64_t mem_count(void)
{
    return atomic_load_explicit(&made, memory_order_relaxed);
}
