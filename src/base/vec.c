/* vec.c - growth by half. */
#include "base/vec.h"

#include <string.h>

void *vec_fit(void *at, size_t *cap, size_t need, size_t size)
{
    size_t bytes;

    if (need <= *cap) return at;
    size_t n = *cap + *cap / 2;
    if (n < 8) n = 8;
    if (n < need) n = need;
    if (__builtin_mul_overflow(n, size, &bytes)) bytes = SIZE_MAX; /* which mem_resize() cannot have */
    at = mem_resize(at, bytes);
    *cap = n;
    return at;
}

void vec_close(void *at, size_t n, size_t i, size_t size)
{
    assert(i < n);
    char *gap = (char *)at + i * size;
    memmove(gap, gap + size, (n - i - 1) * size);
}
