/* idx.c - IDX files, plain or gzip. */
#include <string.h>

#include "base/mem.h"
#include "format/array/idx.h"
#include "format/codec/gzip.h"
#include "format/codec/limit.h"

typedef struct idx_type {
    uint8_t code;
    uint8_t size;
    manta_dtype dtype; /* what it becomes */
} idx_type;

static const idx_type types[] = {
    {0x08, 1, MANTA_DTYPE_U8},  {0x09, 1, MANTA_DTYPE_I32}, {0x0b, 2, MANTA_DTYPE_I32},
    {0x0c, 4, MANTA_DTYPE_I32}, {0x0d, 4, MANTA_DTYPE_F32}, {0x0e, 8, MANTA_DTYPE_F64},
};

static const idx_type *find_type(uint8_t code)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].code == code) return &types[i];
    }
    return NULL;
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool idx_is(const uint8_t *data, size_t size)
{
    uint8_t head[4];
    size_t n = sizeof head;

    if (gzip_is(data, size)) {
        if (gzip_head("", data, size, head, &n)) return false;
    } else {
        if (size < n) return false;
        memcpy(head, data, n);
    }
    return n == 4 && head[0] == 0 && head[1] == 0 && find_type(head[2]);
}

/* Checks `head`, n bytes from the beginning of the unpacked file. */
static manta_status parse_header(idx_file *f, const uint8_t *head, size_t n)
{
    const char *name = f->in.path;

    if (n < 4) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the file has %zu bytes, expected an IDX header of 4 at offset 0", name, n);
    }
    const idx_type *t = find_type(head[2]);
    if (head[0] || head[1] || !t) {
        return manta_fail(
            MANTA_ECORRUPT,
            "%s: wrong magic %02x%02x%02x%02x at offset 0, expected an IDX file (0000, a type of 08, 09, 0b, "
            "0c, 0d or 0e, and the number of dimensions)",
            name, head[0], head[1], head[2], head[3]);
    }
    int ndim = head[3];
    if (ndim < 1 || ndim > MANTA_MAX_DIMS) {
        return manta_fail(MANTA_ECORRUPT, "%s: %d dimensions at offset 3, expected 1 to %d", name, ndim,
                          MANTA_MAX_DIMS);
    }
    f->header = 4 + 4 * (size_t)ndim;
    if (n < f->header) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the header is cut off at offset %zu, expected %d sizes up to offset %zu", name,
                          n, ndim, f->header);
    }
    int64_t shape[MANTA_MAX_DIMS];
    for (int i = 0; i < ndim; i++) shape[i] = be32(head + 4 + 4 * i);
    size_t bytes;
    if (!input_bytes(ndim, shape, t->size, &f->payload) || !input_bytes(ndim, shape, 8, &bytes)) {
        char text[128];
        return manta_fail(MANTA_ECORRUPT, "%s: the sizes %s at offset 4 overflow", name,
                          manta_shape_text(ndim, shape, text, sizeof text));
    }
    f->type = t->code;
    f->array = manta_array_of(t->dtype, ndim, shape, NULL);
    return MANTA_OK;
}

static manta_status read_header(idx_file *f)
{
    uint8_t head[4 + 4 * MANTA_MAX_DIMS];
    size_t n = sizeof head;

    f->gzip = gzip_is(f->in.data, f->in.size);
    if (f->gzip) {
        TRY(gzip_head(f->in.path, f->in.data, f->in.size, head, &n));
    } else {
        if (n > f->in.size) n = f->in.size;
        memcpy(head, f->in.data, n);
    }
    TRY(parse_header(f, head, n));
    if (f->gzip) {
        if (f->payload / GZIP_MAX_RATIO <= f->in.size)
            return limit_unpacked(f->in.path, f->in.size, f->payload);
        return manta_fail(
            MANTA_ECORRUPT,
            "%s: the header at offset 4 promises %zu bytes, which %zu bytes of gzip cannot hold", f->in.path,
            f->payload, f->in.size);
    }
    if (f->payload != f->in.size - f->header) {
        return manta_fail(MANTA_ECORRUPT, "%s: %zu bytes follow the header at offset %zu, expected %zu",
                          f->in.path, f->in.size - f->header, f->header, f->payload);
    }
    return MANTA_OK;
}

static manta_status allocate_elements(idx_file *f)
{
    size_t ours = manta_array_bytes(&f->array);

    if (f->gzip) {
        f->raw = mem_try_raw(f->header + f->payload);
        if (!f->raw) return manta_fail(MANTA_ENOMEM, "%s: no memory for %zu bytes", f->in.path, f->payload);
    }
    if (f->type != 0x08) { /* bytes stay where they are */
        f->converted = mem_try_raw(ours ? ours : 1);
        if (!f->converted) return manta_fail(MANTA_ENOMEM, "%s: no memory for %zu bytes", f->in.path, ours);
    }
    uint8_t *raw = f->raw ? f->raw : f->in.data;
    f->array.data = f->converted ? f->converted : raw + f->header;
    return MANTA_OK;
}

manta_status idx_begin(input *in, idx_file *out)
{
    idx_file f = {.in = *in};
    manta_status st;

    *in = (input){0};
    if ((st = read_header(&f)) || (st = allocate_elements(&f))) {
        idx_release(&f);
        return st;
    }
    *out = f;
    return MANTA_OK;
}

static void convert_elements(const idx_file *f, const uint8_t *from)
{
    int64_t n = manta_array_count(&f->array);
    int32_t *to = f->converted;

    switch (f->type) {
    case 0x09:
        for (int64_t i = 0; i < n; i++) to[i] = (int8_t)from[i];
        break;
    case 0x0b:
        for (int64_t i = 0; i < n; i++) to[i] = (int16_t)((uint16_t)from[2 * i] << 8 | from[2 * i + 1]);
        break;
    default:
        memcpy(f->converted, from, f->payload);
        input_swap(f->converted, n, manta_dtype_size(f->array.dtype)); /* this machine is little endian */
    }
}

manta_status idx_finish(idx_file *f)
{
    /* in.data is kept: a process forked meanwhile may have to do this again */
    if (f->gzip) TRY(gzip_whole(f->in.path, f->in.data, f->in.size, f->raw, f->header + f->payload));
    if (!f->converted) return MANTA_OK;
    convert_elements(f, (f->raw ? f->raw : f->in.data) + f->header);
    int64_t nan =
        f->allow_nan ? -1 : input_find_nan(f->array.data, f->array.dtype, manta_array_count(&f->array));
    if (nan >= 0) {
        return manta_fail(MANTA_ENAN, "%s: element %lld at offset %zu is NaN, expected a number", f->in.path,
                          (long long)nan, f->header + (size_t)nan * manta_dtype_size(f->array.dtype));
    }
    return MANTA_OK;
}

void idx_release(idx_file *f)
{
    input_release(&f->in);
    mem_try_free(f->raw);
    mem_try_free(f->converted);
    *f = (idx_file){0};
}
