/* h5_bytes.c - numbers out of an HDF5 file's bytes, and its checksums. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "format/hdf5/h5_part.h"

static manta_status fail_at(const h5_file *f, manta_status code, const uint8_t *p, const char *fmt,
                            va_list ap)
{
    char what[256];

    vsnprintf(what, sizeof what, fmt, ap);
    return manta_fail(code, "%s: offset %zu: %s", f->path, (size_t)(p - f->data), what);
}

manta_status h5_bad(const h5_file *f, const uint8_t *p, const char *fmt, ...)
{
    va_list ap;
    manta_status st;

    va_start(ap, fmt);
    st = fail_at(f, MANTA_ECORRUPT, p, fmt, ap);
    va_end(ap);
    return st;
}

manta_status h5_lacks(const h5_file *f, const uint8_t *p, const char *fmt, ...)
{
    va_list ap;
    manta_status st;

    va_start(ap, fmt);
    st = fail_at(f, MANTA_EUNSUPPORTED, p, fmt, ap);
    va_end(ap);
    return st;
}

h5_in h5_bytes(const h5_file *f, const uint8_t *p, size_t n)
{
    return (h5_in){.f = f, .p = p, .n = n};
}

manta_status h5_from(const h5_file *f, uint64_t at, const char *what, h5_in *out)
{
    if (at >= f->size) {
        return manta_fail(MANTA_ECORRUPT, "%s: %s lies at offset %llu, beyond the end at %zu", f->path, what,
                          (unsigned long long)at, f->size);
    }
    *out = h5_bytes(f, f->data + at, f->size - (size_t)at);
    return MANTA_OK;
}

manta_status h5_at(const h5_file *f, uint64_t at, uint64_t n, const char *what, h5_in *out)
{
    if (at > f->size || n > f->size - at) {
        return manta_fail(MANTA_ECORRUPT, "%s: %s of %llu bytes lies at offset %llu, beyond the end at %zu",
                          f->path, what, (unsigned long long)n, (unsigned long long)at, f->size);
    }
    *out = h5_bytes(f, f->data + at, (size_t)n);
    return MANTA_OK;
}

const uint8_t *h5_skip(h5_in *in, size_t n)
{
    const uint8_t *p = in->p;

    if (in->over || n > in->n) {
        in->over = true;
        return NULL;
    }
    in->p += n;
    in->n -= n;
    return p;
}

uint64_t h5_take(h5_in *in, size_t bytes)
{
    const uint8_t *p = h5_skip(in, bytes);
    uint64_t v = 0;

    for (size_t i = 0; p && i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

int h5_take_int(h5_in *in, size_t bytes)
{
    return (int)(h5_take(in, bytes) & 0xffff);
}

uint64_t h5_take_address(h5_in *in)
{
    size_t n = (size_t)in->f->address_size;
    uint64_t v = h5_take(in, n);

    return v == UINT64_MAX >> 8 * (8 - n) ? H5_NOWHERE : v;
}

uint64_t h5_take_length(h5_in *in)
{
    return h5_take(in, (size_t)in->f->length_size);
}

bool h5_take_magic(h5_in *in, const char *four)
{
    const uint8_t *p = h5_skip(in, 4);

    return p && !memcmp(p, four, 4);
}

manta_status h5_whole(const h5_in *in, const char *what)
{
    return in->over ? h5_bad(in->f, in->p, "%s is cut short", what) : MANTA_OK;
}

/* ---- the checksum of metadata: Bob Jenkins's lookup3 ---- */

static uint32_t rotate_left(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

static uint32_t load_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t sum_bytes(const uint8_t *p, size_t n)
{
    static const int rounds[6] = {4, 6, 8, 16, 19, 4}, ends[7] = {14, 11, 25, 16, 4, 14, 24};
    uint32_t s[3]; /* a, b, c */
    uint8_t last[12] = {0};

    s[0] = s[1] = s[2] = 0xdeadbeef + (uint32_t)n;
    for (; n > 12; p += 12, n -= 12) {
        for (int i = 0; i < 3; i++) s[i] += load_le32(p + 4 * i);
        for (int i = 0; i < 6; i++) { /* a and c, b and a, c and b, twice */
            int x = i % 3, y = (x + 2) % 3, z = (x + 1) % 3;
            s[x] -= s[y];
            s[x] ^= rotate_left(s[y], rounds[i]);
            s[y] += s[z];
        }
    }
    if (n == 0) return s[2];
    memcpy(last, p, n);
    for (int i = 0; i < 3; i++) s[i] += load_le32(last + 4 * i);
    for (int i = 0; i < 7; i++) { /* c by b, a by c, b by a, and so on */
        int x = (i + 2) % 3, y = (i + 1) % 3;
        s[x] ^= s[y];
        s[x] -= rotate_left(s[y], ends[i]);
    }
    return s[2];
}

manta_status h5_check_sum(const h5_file *f, const uint8_t *p, size_t n, const char *what)
{
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    (void)sum_bytes; /* or fuzzing would never get beyond it */
    (void)f;
    (void)p;
    (void)n;
    (void)what;
#else
    if (sum_bytes(p, n - 4) != load_le32(p + n - 4))
        return h5_bad(f, p, "%s does not have its checksum", what);
#endif
    return MANTA_OK;
}

int h5_log2(uint64_t v)
{
    int n = 0;

    while (v >>= 1) n++;
    return n;
}

size_t h5_bytes_for(uint64_t limit)
{
    return (size_t)h5_log2(limit) / 8 + 1;
}
