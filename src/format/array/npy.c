/* npy.c - NumPy's .npy. The header is a Python dictionary literal; only the
 * shape that NumPy writes is understood, and nothing is evaluated. */
#include <string.h>

#include "base/mem.h"
#include "format/array/npy.h"

typedef struct npy_type {
    char kind;
    int size;
    manta_dtype dtype; /* what it becomes */
    bool same; /* and has the same bytes */
} npy_type;

static const npy_type types[] = {
    {'f', 4, MANTA_DTYPE_F32, true},  {'f', 8, MANTA_DTYPE_F64, true},  {'f', 2, MANTA_DTYPE_F16, true},
    {'i', 4, MANTA_DTYPE_I32, true},  {'i', 8, MANTA_DTYPE_I64, true},  {'u', 1, MANTA_DTYPE_U8, true},
    {'b', 1, MANTA_DTYPE_BOOL, true}, {'i', 1, MANTA_DTYPE_I32, false}, {'i', 2, MANTA_DTYPE_I32, false},
    {'u', 2, MANTA_DTYPE_I32, false}, {'u', 4, MANTA_DTYPE_I64, false}, {'u', 8, MANTA_DTYPE_I64, false},
};

typedef struct header {
    const npy_type *type;
    bool swapped;
    bool fortran;
    int ndim;
    int64_t shape[MANTA_MAX_DIMS];
    size_t at; /* offset of the elements */
} header;

/* ---- the dictionary ------------------------------------------------------------- */

typedef struct scan {
    const char *name;
    const uint8_t *data;
    size_t at, end;
} scan;

static manta_status fail_expected(const scan *s, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: the .npy header at offset %zu is not understood, expected %s",
                      s->name, s->at, what);
}

static void skip_space(scan *s)
{
    while (s->at < s->end && (s->data[s->at] == ' ' || s->data[s->at] == '\n' || s->data[s->at] == '\t'))
        s->at++;
}

static bool take_char(scan *s, char c)
{
    skip_space(s);
    if (s->at >= s->end || s->data[s->at] != (uint8_t)c) return false;
    s->at++;
    return true;
}

static bool take_word(scan *s, const char *word)
{
    size_t n = strlen(word);

    skip_space(s);
    if (s->end - s->at < n || memcmp(s->data + s->at, word, n) != 0) return false;
    s->at += n;
    return true;
}

/* A quoted string without escapes, into text[0..size). */
static manta_status scan_string(scan *s, char *text, size_t size)
{
    skip_space(s);
    if (s->at >= s->end || (s->data[s->at] != '\'' && s->data[s->at] != '"'))
        return fail_expected(s, "a string");
    uint8_t quote = s->data[s->at++];
    size_t n = 0;
    while (s->at < s->end && s->data[s->at] != quote) {
        if (n + 1 >= size || s->data[s->at] == '\\') return fail_expected(s, "a short string");
        text[n++] = (char)s->data[s->at++];
    }
    if (s->at >= s->end) return fail_expected(s, "the end of a string");
    s->at++;
    text[n] = '\0';
    return MANTA_OK;
}

static manta_status scan_shape(scan *s, header *h)
{
    if (!take_char(s, '(')) return fail_expected(s, "a tuple of sizes");
    while (!take_char(s, ')')) {
        int64_t v = 0;
        size_t digits = 0;
        skip_space(s);
        for (; s->at < s->end && s->data[s->at] >= '0' && s->data[s->at] <= '9'; s->at++, digits++) {
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, s->data[s->at] - '0', &v)) {
                return fail_expected(s, "a size below 2^63");
            }
        }
        if (!digits) return fail_expected(s, "a size");
        take_char(s, 'L'); /* as Python 2 wrote it */
        if (h->ndim == MANTA_MAX_DIMS) {
            return manta_fail(MANTA_EUNSUPPORTED, "%s: the array at offset %zu has more than %d dimensions",
                              s->name, s->at, MANTA_MAX_DIMS);
        }
        h->shape[h->ndim++] = v;
        if (!take_char(s, ',')) {
            if (!take_char(s, ')')) return fail_expected(s, "',' or ')'");
            break;
        }
    }
    return MANTA_OK;
}

static manta_status parse_descr(const scan *s, const char *text, header *h)
{
    char order = text[0];

    if (strlen(text) == 3 && strchr("<>|=", order)) {
        for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
            if (types[i].kind == text[1] && types[i].size == text[2] - '0') h->type = &types[i];
        }
    }
    if (!h->type) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the dtype '%s' at offset %zu is not supported, expected f2, f4, f8, u1, u2, "
                          "u4, u8, i1, i2, i4, "
                          "i8 or b1",
                          s->name, text, s->at);
    }
    h->swapped = order == '>' && h->type->size > 1;
    return MANTA_OK;
}

static manta_status scan_entry(scan *s, header *h, unsigned *seen)
{
    char key[24], text[24];

    TRY(scan_string(s, key, sizeof key));
    if (!take_char(s, ':')) return fail_expected(s, "':'");
    if (strcmp(key, "descr") == 0) {
        *seen |= 1;
        skip_space(s);
        if (s->at < s->end && s->data[s->at] == '[') {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "%s: the array at offset %zu has records, expected plain numbers", s->name,
                              s->at);
        }
        TRY(scan_string(s, text, sizeof text));
        return parse_descr(s, text, h);
    }
    if (strcmp(key, "fortran_order") == 0) {
        *seen |= 2;
        h->fortran = take_word(s, "True");
        return h->fortran || take_word(s, "False") ? MANTA_OK : fail_expected(s, "True or False");
    }
    if (strcmp(key, "shape") == 0 && !(*seen & 4)) {
        *seen |= 4;
        return scan_shape(s, h);
    }
    return fail_expected(s, "'descr', 'fortran_order' and 'shape', each once");
}

static manta_status scan_header(scan *s, header *h)
{
    unsigned seen = 0;

    if (!take_char(s, '{')) return fail_expected(s, "a dictionary");
    while (!take_char(s, '}')) {
        TRY(scan_entry(s, h, &seen));
        if (!take_char(s, ',')) {
            if (!take_char(s, '}')) return fail_expected(s, "',' or '}'");
            break;
        }
    }
    skip_space(s);
    if (s->at != s->end) return fail_expected(s, "only spaces after the dictionary");
    if (seen != 7) return fail_expected(s, "'descr', 'fortran_order' and 'shape'");
    return MANTA_OK;
}

bool npy_is(const uint8_t *data, size_t size)
{
    return size >= 6 && memcmp(data, "\x93NUMPY", 6) == 0;
}

static manta_status parse_header(const char *name, const uint8_t *data, size_t size, header *h)
{
    if (!npy_is(data, size)) {
        return manta_fail(MANTA_ECORRUPT, "%s: wrong magic at offset 0, expected \\x93NUMPY", name);
    }
    if (size < 10)
        return manta_fail(MANTA_ECORRUPT, "%s: cut off at offset %zu, in the .npy header", name, size);
    if (data[6] < 1 || data[6] > 3 || data[7] != 0) {
        return manta_fail(MANTA_ECORRUPT, "%s: version %d.%d at offset 6, expected 1.0, 2.0 or 3.0", name,
                          data[6], data[7]);
    }
    size_t at = data[6] == 1 ? 10 : 12;
    size_t n = (size_t)data[8] | (size_t)data[9] << 8;
    if (at == 12) {
        if (size < 12)
            return manta_fail(MANTA_ECORRUPT, "%s: cut off at offset %zu, in the .npy header", name, size);
        n |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    }
    if (n > size - at) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the header's length %zu at offset 8 goes beyond the end at %zu", name, n,
                          size);
    }
    scan s = {.name = name, .data = data, .at = at, .end = at + n};
    TRY(scan_header(&s, h));
    h->at = at + n;
    return MANTA_OK;
}

/* ---- the elements ----------------------------------------------------------------- */

/* Copies n elements from Fortran order: the last index moves slowest. */
static void from_fortran(const header *h, const uint8_t *from, uint8_t *to)
{
    int64_t index[MANTA_MAX_DIMS] = {0}, stride[MANTA_MAX_DIMS], n = 1;
    size_t size = (size_t)h->type->size;

    for (int i = 0; i < h->ndim; i++) {
        stride[i] = n;
        n *= h->shape[i];
    }
    for (int64_t k = 0, at = 0; k < n; k++) {
        memcpy(to + (size_t)k * size, from + (size_t)at * size, size);
        for (int i = h->ndim - 1; i >= 0; i--) {
            at += stride[i];
            if (++index[i] < h->shape[i]) break;
            at -= stride[i] * h->shape[i];
            index[i] = 0;
        }
    }
}

/* Elements of a type that has none of ours, widened. From the last to the
 * first, so that source and destination may be the same memory. */
static int64_t widen_elements(const npy_type *t, int64_t n, const uint8_t *from, void *to)
{
    int32_t *i32 = to;
    int64_t *i64 = to, bad = -1;

    for (int64_t i = n; i-- > 0;) {
        uint64_t v = 0;
        memcpy(&v, from + (size_t)i * (size_t)t->size, (size_t)t->size);
        if (t->kind == 'i') {
            i32[i] = t->size == 1 ? (int8_t)v : (int16_t)v;
        } else if (t->size == 2) {
            i32[i] = (int32_t)v;
        } else {
            if (v > INT64_MAX) bad = i;
            i64[i] = (int64_t)v;
        }
    }
    return bad;
}

static manta_status check_bool(const char *name, const header *h, const blob *b, int64_t n)
{
    const uint8_t *v = b->array.data;

    for (int64_t i = 0; h->type->kind == 'b' && i < n; i++) {
        if (v[i] > 1) {
            return manta_fail(MANTA_ECORRUPT, "%s: the bool at offset %zu is %d, expected 0 or 1", name,
                              h->at + (size_t)i, v[i]);
        }
    }
    return MANTA_OK;
}

static manta_status load_elements(const char *name, const uint8_t *data, const header *h, size_t bytes,
                                  bool allow_nan, blob *b)
{
    uint8_t *to = b->memory;
    size_t size = (size_t)h->type->size;
    int64_t n = (int64_t)(bytes / size);

    if (h->fortran && h->ndim > 1 && n > 0) {
        from_fortran(h, data + h->at, to);
    } else if (n > 0) {
        memcpy(to, data + h->at, bytes);
    }
    if (h->swapped) input_swap(to, n, size);
    if (!h->type->same) {
        int64_t bad = widen_elements(h->type, n, to, to);
        if (bad >= 0) {
            return manta_fail(MANTA_EUNSUPPORTED, "%s: the number at element %lld is above 2^63 - 1", name,
                              (long long)bad);
        }
    }
    TRY(check_bool(name, h, b, n));
    int64_t nan = allow_nan ? -1 : input_find_nan(to, b->array.dtype, n);
    if (nan >= 0) {
        return manta_fail(MANTA_ENAN,
                          "%s: element %lld%s is NaN, expected a number (the elements begin at offset %zu)",
                          name, (long long)nan, h->fortran ? " in row-major order" : "", h->at);
    }
    return MANTA_OK;
}

manta_status npy_parse(const char *name, const uint8_t *data, size_t size, bool allow_nan, blob *out)
{
    header h = {0};
    size_t bytes, ours;

    TRY(parse_header(name, data, size, &h));
    if (!input_bytes(h.ndim, h.shape, (size_t)h.type->size, &bytes) ||
        !input_bytes(h.ndim, h.shape, 8, &ours)) {
        char text[160];
        return manta_fail(MANTA_ECORRUPT, "%s: the shape %s overflows", name,
                          manta_shape_text(h.ndim, h.shape, text, sizeof text));
    }
    if (bytes != size - h.at) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: %zu bytes of elements follow the header at offset %zu, expected %zu", name,
                          size - h.at, h.at, bytes);
    }
    blob b = {.array = manta_array_of(h.type->dtype, h.ndim, h.shape, NULL)};
    ours = bytes / (size_t)h.type->size * manta_dtype_size(h.type->dtype);
    b.memory = b.array.data = mem_try_raw(ours ? ours : 1);
    if (!b.memory) return manta_fail(MANTA_ENOMEM, "%s: no memory for %zu bytes", name, ours);
    manta_status st = load_elements(name, data, &h, bytes, allow_nan, &b);
    if (st) {
        blob_release(&b);
        return st;
    }
    *out = b;
    return MANTA_OK;
}

/* ---- writing ------------------------------------------------------------------------ */

manta_status npy_header(const manta_array *a, buf *b)
{
    static const char *const descr[MANTA_DTYPE_COUNT] = {
        [MANTA_DTYPE_F32] = "<f4", [MANTA_DTYPE_F64] = "<f8", [MANTA_DTYPE_F16] = "<f2",
        [MANTA_DTYPE_I32] = "<i4", [MANTA_DTYPE_I64] = "<i8", [MANTA_DTYPE_U8] = "|u1",
        [MANTA_DTYPE_BOOL] = "|b1"};
    buf text = {0};

    if (manta_dtype_size(a->dtype) == 0 || !descr[a->dtype]) {
        return manta_fail(MANTA_EUNSUPPORTED, "npy: NumPy has no %s; convert the array to float32 first",
                          manta_dtype_name(a->dtype));
    }
    buf_printf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr[a->dtype]);
    for (int i = 0; i < a->ndim; i++) buf_printf(&text, "%s%lld", i ? ", " : "", (long long)a->shape[i]);
    buf_printf(&text, "%s), }", a->ndim == 1 ? "," : "");
    while ((10 + text.n + 1) % 64) buf_add_char(&text, ' '); /* elements begin on a cache line */
    buf_add_char(&text, '\n');
    char head[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(text.n & 255), (char)(text.n >> 8)};
    buf_add(b, head, sizeof head);
    buf_add(b, text.at, text.n);
    buf_release(&text);
    return MANTA_OK;
}
