/* h5_type.c - shapes and types of an HDF5 file's elements, and their conversion. */
#include <string.h>

#include "format/codec/input.h"
#include "format/hdf5/h5_part.h"

/* ---- shapes ---- */

manta_status h5_space_parse(const h5_file *f, h5_in in, h5_space *out)
{
    const uint8_t *start = in.p;
    int version = h5_take_int(&in, 1), ndim = h5_take_int(&in, 1), flags = h5_take_int(&in, 1);
    int kind = h5_take_int(&in, 1);
    h5_space s = {.ndim = ndim};

    if (version == 1) {
        h5_skip(&in, 4);
    } else if (version == 2) {
        s.none = kind == 2;
    } else {
        return h5_lacks(f, start, "a shape of version %d, expected 1 or 2", version);
    }
    if (ndim > H5_MAX_RANK)
        return h5_bad(f, start, "a shape has %d dimensions, expected at most %d", ndim, H5_MAX_RANK);
    for (int i = 0; i < ndim; i++) s.most[i] = s.dims[i] = h5_take_length(&in);
    for (int i = 0; i < ndim && flags & 1; i++) {
        uint64_t most = h5_take_length(&in);
        if (f->length_size < 8 && most == UINT64_MAX >> 8 * (8 - f->length_size)) most = H5_NOWHERE;
        if (most < s.dims[i]) return h5_bad(f, start, "a shape is larger than it may become");
        s.most[i] = most;
    }
    TRY(h5_whole(&in, "a shape"));
    *out = s;
    return MANTA_OK;
}

/* ---- types ---- */

static void parse_number(h5_in *in, unsigned bits, h5_type *t)
{
    int first = h5_take_int(in, 2), precision = h5_take_int(in, 2);

    t->big = bits & 1;
    t->is_signed = bits & 8;
    t->is_plain = first == 0 && (size_t)precision == 8 * t->size &&
                  (t->size == 1 || t->size == 2 || t->size == 4 || t->size == 8);
    t->dtype = t->size == 1 && !t->is_signed  ? MANTA_DTYPE_U8
               : t->size == 4 && t->is_signed ? MANTA_DTYPE_I32
                                              : MANTA_DTYPE_I64;
}

/* The floating-point numbers that both sides know, by where their parts are. */
static const struct {
    size_t size;
    int sign, exponent, exponent_bits, mantissa_bits;
    uint32_t bias;
    manta_dtype dtype;
} floats[] = {{2, 15, 10, 5, 10, 15, MANTA_DTYPE_F16},
              {2, 15, 7, 8, 7, 127, MANTA_DTYPE_BF16},
              {4, 31, 23, 8, 23, 127, MANTA_DTYPE_F32},
              {8, 63, 52, 11, 52, 1023, MANTA_DTYPE_F64}};

static void parse_float(h5_in *in, unsigned bits, h5_type *t)
{
    int first = h5_take_int(in, 2), precision = h5_take_int(in, 2), sign = (int)(bits >> 8 & 0xff);
    int exponent = h5_take_int(in, 1), exponent_bits = h5_take_int(in, 1);
    int mantissa = h5_take_int(in, 1), mantissa_bits = h5_take_int(in, 1);
    uint32_t bias = (uint32_t)h5_take(in, 4);

    t->big = bits & 1;
    if (bits & 0x40 || (bits >> 4 & 3) != 2) return; /* a VAX's; a leading bit that is not implied */
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        if (t->size == floats[i].size && first == 0 && (size_t)precision == 8 * t->size &&
            sign == floats[i].sign && exponent == floats[i].exponent &&
            exponent_bits == floats[i].exponent_bits && mantissa == 0 &&
            mantissa_bits == floats[i].mantissa_bits && bias == floats[i].bias) {
            t->is_plain = true;
            t->dtype = floats[i].dtype;
        }
    }
}

/* h5py's bool: FALSE = 0 and TRUE = 1 over a byte. */
static void parse_enum(h5_in *in, int version, unsigned bits, h5_type *t)
{
    static const char *const names[2] = {"FALSE", "TRUE"};
    const uint8_t *base = h5_skip(in, 12), *values;

    if (!base || (base[0] & 15) != H5_FIXED || (bits & 0xffff) != 2 || t->size != 1) return;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(names[i]) + 1;
        const uint8_t *name = h5_skip(in, version < 3 ? 8 : n);
        if (!name || memcmp(name, names[i], n) != 0) return;
    }
    values = h5_skip(in, 2);
    t->is_bool = values && values[0] == 0 && values[1] == 1;
    t->dtype = MANTA_DTYPE_BOOL;
}

manta_status h5_type_parse(const h5_file *f, h5_in in, h5_type *out)
{
    const uint8_t *start = in.p;
    int first = h5_take_int(&in, 1), version = first >> 4;
    unsigned bits = (unsigned)h5_take(&in, 3);
    h5_type t = {.class = first & 15, .size = (size_t)h5_take(&in, 4)};

    TRY(h5_whole(&in, "a type"));
    if (version < 1 || version > 5)
        return h5_lacks(f, start, "a type of version %d, expected 1 to 5", version);
    if (t.size == 0) return h5_bad(f, start, "the elements of a type have no bytes");
    switch (t.class) {
    case H5_FIXED: parse_number(&in, bits, &t); break;
    case H5_FLOAT: parse_float(&in, bits, &t); break;
    case H5_STRING: t.spaces = (bits & 15) == 2; break;
    case H5_ENUM: parse_enum(&in, version, bits, &t); break;
    case H5_VARIABLE: t.is_text = (bits & 15) == 1; break;
    default: break;
    }
    TRY(h5_whole(&in, "a type"));
    *out = t;
    return MANTA_OK;
}

/* ---- conversion ---- */

bool h5_type_as_stored(const h5_type *type, manta_dtype t)
{
    return type->size == manta_dtype_size(t) && (!type->big || type->size == 1) && !type->is_bool;
}

static uint64_t load_element(const h5_type *type, const uint8_t *p)
{
    uint64_t v = 0;

    for (size_t i = 0; i < type->size; i++) v = v << 8 | p[type->big ? i : type->size - 1 - i];
    if (type->is_signed && type->size < 8 && v >> (8 * type->size - 1)) v |= UINT64_MAX << 8 * type->size;
    return v;
}

manta_status h5_type_convert(const h5_file *f, const char *at, const h5_type *type, const uint8_t *from,
                             manta_dtype t, void *to, size_t n)
{
    size_t size = manta_dtype_size(t);
    int64_t *out = to;

    if (type->size == size && !(t == MANTA_DTYPE_I64 && !type->is_signed)) {
        if (n && from != to) memcpy(to, from, n * size);
        if (type->big && size > 1) input_swap(to, (int64_t)n, size);
        for (size_t i = 0; i < n && t == MANTA_DTYPE_BOOL; i++) ((uint8_t *)to)[i] = ((uint8_t *)to)[i] != 0;
        return MANTA_OK;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v = load_element(type, from + i * type->size);
        if (!type->is_signed && v > INT64_MAX) {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "%s: /%s: an element is %llu, which is more than an int64 holds", f->path, at,
                              (unsigned long long)v);
        }
        out[i] = (int64_t)v;
    }
    return MANTA_OK;
}
