/* webdataset_field.c - what a member of a sample holds, and its decoding. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "format/array/npy.h"
#include "format/webdataset/webdataset_field.h"

static const struct {
    const char *name;
    webdataset_kind kind;
} kinds[] = {{"png", WEBDATASET_IMAGE}, {"jpg", WEBDATASET_IMAGE}, {"jpeg", WEBDATASET_IMAGE},
             {"npy", WEBDATASET_ARRAY}, {"bin", WEBDATASET_BYTES}, {"cls", WEBDATASET_WHOLE},
             {"id", WEBDATASET_WHOLE},  {"inx", WEBDATASET_WHOLE}, {"index", WEBDATASET_WHOLE},
             {"txt", WEBDATASET_NUMBER}};

/* What comes after the last dot of an extension of n bytes. */
static bool find_kind(const char *text, size_t n, webdataset_kind *out)
{
    const char *last = text;

    for (const char *p = text; p < text + n; p++) {
        if (*p == '.') last = p + 1;
    }
    size_t k = (size_t)(text + n - last);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strlen(kinds[i].name) != k || memcmp(kinds[i].name, last, k) != 0) continue;
        *out = kinds[i].kind;
        return true;
    }
    return false;
}

/* "json.KEY" or "meta.json.KEY". */
static const char *find_json(const char *text)
{
    const char *p = strncmp(text, "json.", 5) == 0 ? text : strstr(text, ".json.");

    if (!p) return NULL;
    p += *p == '.' ? 6 : 5;
    return *p ? p : NULL;
}

/* The ending is what was mistyped, if anything was: "imgae.pgn". */
static manta_status no_kind(const char *text, const char *column)
{
    const char *dot = strrchr(text, '.'), *typed = dot ? dot + 1 : text;
    manta_suggestion near = manta_suggestion_for(typed);
    char hint[SUGGEST_TEXT];

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) manta_suggestion_offer(&near, kinds[i].name);
    manta_suggestion_offer(&near, "json.KEY");
    return manta_fail(
        MANTA_EINVAL,
        "members '%.40s' cannot be %s; expected png, jpg, jpeg, npy, bin, cls, txt or json.KEY%s", text,
        column, manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status webdataset_field_init(webdataset_field *f, const char *column, const char *text, bool allow_nan)
{
    const char *key = find_json(text);
    webdataset_kind kind;

    *f = (webdataset_field){.allow_nan = allow_nan};
    strncpy(f->column.name, column, sizeof f->column.name - 1);
    if (key) {
        f->kind = WEBDATASET_JSON;
        f->names = mem_strndup(text, (size_t)(key - text) - 1);
        f->key = mem_strdup(key);
        return MANTA_OK;
    }
    for (const char *p = text;; p++) {
        size_t n = strcspn(p, ";");
        if (!find_kind(p, n, &kind) || (p > text && kind != f->kind)) return no_kind(text, column);
        f->kind = kind;
        p += n;
        if (!*p) break;
    }
    f->names = mem_strdup(text);
    return MANTA_OK;
}

void webdataset_field_release(webdataset_field *f)
{
    mem_free(f->names);
    mem_free(f->key);
    *f = (webdataset_field){0};
}

bool webdataset_field_is(const webdataset_field *f, const char *extension)
{
    size_t n = strlen(extension);

    for (const char *p = f->names;; p++) {
        size_t k = strcspn(p, ";");
        if (k == n && memcmp(p, extension, n) == 0) return true;
        p += k;
        if (!*p) return false;
    }
}

/* ---- numbers ----------------------------------------------------------------------------------- */

typedef struct value {
    bool is_whole;
    int64_t whole;
    double real;
} value;

static manta_status no_number(const char *name, const uint8_t *data, size_t size, const char *expected)
{
    char text[40];
    size_t n = size < sizeof text - 4 ? size : sizeof text - 4;

    for (size_t i = 0; i < n; i++) text[i] = data[i] >= ' ' && data[i] < 127 ? (char)data[i] : '?';
    strcpy(text + n, size > n ? "..." : "");
    return manta_fail(MANTA_ECORRUPT, "%s holds '%s', expected %s", name, text, expected);
}

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whole numbers as Python's int() takes them; others as JSON writes them, which
 * is how the C locale does. */
static bool parse_text(const uint8_t *data, size_t size, value *out)
{
    char text[64], *end;
    json_t *j;

    while (size && is_space(data[0])) data++, size--;
    while (size && is_space(data[size - 1])) size--;
    if (size == 0 || size >= sizeof text) return false;
    memcpy(text, data, size);
    text[size] = '\0';
    errno = 0;
    out->whole = strtoll(text, &end, 10);
    out->is_whole = end == text + size && errno == 0;
    out->real = (double)out->whole;
    if (out->is_whole) return true;
    j = json_loadb(text, size, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
    bool ok = json_is_real(j);
    if (ok) out->real = json_real_value(j);
    json_decref(j);
    return ok;
}

static manta_status no_key(const webdataset_field *f, const char *name, json_t *object)
{
    manta_suggestion near = manta_suggestion_for(f->key);
    char hint[SUGGEST_TEXT];
    const char *key;
    json_t *v;

    json_object_foreach(object, key, v)
    {
        if (strcmp(key, f->key) && (json_is_number(v) || json_is_boolean(v)))
            manta_suggestion_offer(&near, key);
    }
    return manta_fail(MANTA_ECORRUPT, "%s: the JSON object has no number under '%s'%s", name, f->key,
                      manta_suggestion_text(&near, hint, sizeof hint));
}

static manta_status parse_json(const webdataset_field *f, const char *name, const uint8_t *data, size_t size,
                               value *out)
{
    json_error_t e;
    json_t *j = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, &e);
    const json_t *v = json_object_get(j, f->key);
    manta_status st = MANTA_OK;

    if (!j) {
        st = manta_fail(MANTA_ECORRUPT, "%s: it is no JSON (%s)", name, e.text);
    } else if (json_is_integer(v)) {
        *out = (value){true, json_integer_value(v), (double)json_integer_value(v)};
    } else if (json_is_boolean(v)) {
        *out = (value){true, json_is_true(v), json_is_true(v)};
    } else if (json_is_real(v)) {
        *out = (value){.real = json_real_value(v)};
    } else {
        st = no_key(f, name, j);
    }
    json_decref(j);
    return st;
}

static manta_status read_value(const webdataset_field *f, const char *name, const uint8_t *data, size_t size,
                               value *out)
{
    *out = (value){0};
    if (f->kind == WEBDATASET_JSON) return parse_json(f, name, data, size, out);
    if (parse_text(data, size, out) && (out->is_whole || f->kind == WEBDATASET_NUMBER)) return MANTA_OK;
    return no_number(name, data, size, f->kind == WEBDATASET_WHOLE ? "a whole number" : "a number");
}

static manta_status read_number(const webdataset_field *f, const char *name, const uint8_t *data, size_t size,
                                void *out)
{
    value v;

    TRY(read_value(f, name, data, size, &v));
    if (f->column.dtype == MANTA_DTYPE_F32) {
        float k = (float)v.real;
        memcpy(out, &k, sizeof k);
        return MANTA_OK;
    }
    if (!v.is_whole) return no_number(name, data, size, "a whole number as in the first sample");
    memcpy(out, &v.whole, sizeof v.whole);
    return MANTA_OK;
}

/* ---- arrays ------------------------------------------------------------------------------------ */

static manta_status read_array(const webdataset_field *f, const char *name, const uint8_t *data, size_t size,
                               void *out)
{
    const manta_column_spec *c = &f->column;
    char is[80], expected[80];
    blob b = {0};
    manta_status st = MANTA_OK;

    TRY(npy_parse(name, data, size, f->allow_nan, &b));
    if (b.array.dtype != c->dtype || b.array.ndim != c->ndim ||
        memcmp(b.array.shape, c->shape, (size_t)c->ndim * sizeof c->shape[0]) != 0) {
        st = manta_fail(
            MANTA_EINVAL, "%s: it holds an array of %s %s, expected %s %s as in the first sample", name,
            manta_dtype_name(b.array.dtype), manta_shape_text(b.array.ndim, b.array.shape, is, sizeof is),
            manta_dtype_name(c->dtype), manta_shape_text(c->ndim, c->shape, expected, sizeof expected));
    } else if (manta_array_bytes(&b.array)) {
        memcpy(out, b.array.data, manta_array_bytes(&b.array));
    }
    blob_release(&b);
    return st;
}

static manta_status decide_array(webdataset_field *f, const char *name, const uint8_t *data, size_t size)
{
    blob b = {0};

    TRY(npy_parse(name, data, size, f->allow_nan, &b));
    f->column.dtype = b.array.dtype;
    f->column.ndim = b.array.ndim;
    memcpy(f->column.shape, b.array.shape, (size_t)b.array.ndim * sizeof b.array.shape[0]);
    blob_release(&b);
    return MANTA_OK;
}

static manta_status read_bytes(const webdataset_field *f, const char *name, const uint8_t *data, size_t size,
                               void *out)
{
    if ((int64_t)size != f->column.shape[0]) {
        return manta_fail(MANTA_EINVAL, "%s: it has %zu bytes, expected %lld as in the first sample", name,
                          size, (long long)f->column.shape[0]);
    }
    if (size) memcpy(out, data, size);
    return MANTA_OK;
}

/* ---- any --------------------------------------------------------------------------------------- */

manta_status webdataset_field_decide(webdataset_field *f, const manta_open_options *o, const char *name,
                                     const uint8_t *data, size_t size)
{
    manta_column_spec *c = &f->column;
    value v;

    switch (f->kind) {
    case WEBDATASET_IMAGE: {
        manta_column_spec image;
        TRY(image_size_decide(o, name, data, size, &f->image));
        image = image_size_column(&f->image, c->name);
        *c = image;
        break;
    }
    case WEBDATASET_ARRAY: TRY(decide_array(f, name, data, size)); break;
    case WEBDATASET_BYTES:
        c->dtype = MANTA_DTYPE_U8;
        c->ndim = 1;
        c->shape[0] = (int64_t)size;
        break;
    default:
        TRY(read_value(f, name, data, size, &v));
        c->dtype = v.is_whole ? MANTA_DTYPE_I64 : MANTA_DTYPE_F32;
    }
    f->decided = true;
    return MANTA_OK;
}

manta_status webdataset_field_read(const webdataset_field *f, const char *name, const uint8_t *data,
                                   size_t size, void *out)
{
    switch (f->kind) {
    case WEBDATASET_IMAGE: return image_size_decode(&f->image, name, data, size, out);
    case WEBDATASET_ARRAY: return read_array(f, name, data, size, out);
    case WEBDATASET_BYTES: return read_bytes(f, name, data, size, out);
    default: return read_number(f, name, data, size, out);
    }
}
