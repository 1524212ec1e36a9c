/* golden.h - reads the recordings of tests/golden (see the README there).
 *
 * A recording is an .npz whose members are stored, not compressed: a zip of
 * .npy files. Its member `config` is a flat JSON object in bytes. The reader
 * lives here and not in format/, because the tests of folders below format/
 * need it and because the thing that checks the readers must not be one of
 * them. What is wrong with a recording fails the running test.
 *
 *     manta_array x;
 *     assert_true(golden_load("keras_dense.npz", "x", &x));
 *     ...
 *     golden_free(&x);
 *
 * Includes cmocka.h and what it needs; include it in its place. */
#ifndef TESTS_UNIT_GOLDEN_H
#define TESTS_UNIT_GOLDEN_H

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <manta/array.h>

/* The whole file `path` (relative to tests/golden) in memory of malloc(). */
static inline unsigned char *golden_file(const char *path, size_t *size)
{
    char full[1024];

    snprintf(full, sizeof full, "%s/tests/golden/%s", MANTA_SOURCE_DIR, path);
    FILE *f = fopen(full, "rb");
    if (!f) fail_msg("%s cannot be opened", full);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long end = ftell(f);
    assert_true(end > 0);
    rewind(f);
    unsigned char *bytes = malloc((size_t)end);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)end, f), (size_t)end);
    fclose(f);
    *size = (size_t)end;
    return bytes;
}

static inline uint32_t golden_le(const unsigned char *p, int n)
{
    uint32_t v = 0;

    for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

/* Finds the stored member `name`.npy; NULL when there is none. */
static inline const unsigned char *golden_member(const char *path, const unsigned char *zip, size_t size,
                                                 const char *name, size_t *out_size)
{
    size_t at = 0, wanted = strlen(name);

    while (at + 30 <= size && golden_le(zip + at, 4) == 0x04034b50u) {
        const unsigned char *h = zip + at;
        size_t bytes = golden_le(h + 18, 4), n = golden_le(h + 26, 2), extra = golden_le(h + 28, 2);
        if (golden_le(h + 8, 2) != 0 || (golden_le(h + 6, 2) & 8) || at + 30 + n + extra + bytes > size)
            fail_msg("%s: a member is compressed, streamed or cut", path);
        if (n == wanted + 4 && !memcmp(h + 30, name, wanted) && !memcmp(h + 30 + wanted, ".npy", 4)) {
            *out_size = bytes;
            return h + 30 + n + extra;
        }
        at += 30 + n + extra + bytes;
    }
    return NULL;
}

static inline manta_dtype golden_dtype(const char *path, const char *header)
{
    static const struct {
        const char *descr;
        manta_dtype dtype;
    } known[] = {{"'<f4'", MANTA_DTYPE_F32}, {"'<f8'", MANTA_DTYPE_F64}, {"'<i4'", MANTA_DTYPE_I32},
                 {"'<i8'", MANTA_DTYPE_I64}, {"'|u1'", MANTA_DTYPE_U8},  {"'|b1'", MANTA_DTYPE_BOOL}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strstr(header, known[i].descr)) return known[i].dtype;
    fail_msg("%s: no dtype that a recording uses: %s", path, header);
    return MANTA_DTYPE_F32;
}

/* Copies the array `name` of the recording `path` into *out. False when the
 * recording has none by that name; *out is then empty. Owned by the caller:
 * golden_free(). */
static inline bool golden_load(const char *path, const char *name, manta_array *out)
{
    size_t size, bytes = 0;
    unsigned char *zip = golden_file(path, &size);
    const unsigned char *npy = golden_member(path, zip, size, name, &bytes);

    memset(out, 0, sizeof *out);
    if (!npy) {
        free(zip);
        return false;
    }
    if (bytes < 10 || memcmp(npy, "\x93NUMPY\x01\x00", 8) != 0) fail_msg("%s: %s is no .npy", path, name);
    size_t length = golden_le(npy + 8, 2);
    char header[512];
    assert_true(length < sizeof header && 10 + length <= bytes);
    memcpy(header, npy + 10, length);
    header[length] = '\0';
    const char *p = strstr(header, "'shape': (");
    if (!p || strstr(header, "'fortran_order': True")) fail_msg("%s: %s has no C shape", path, name);

    int64_t shape[MANTA_MAX_DIMS];
    int ndim = 0;
    for (p += strlen("'shape': ("); *p && *p != ')';) {
        char *end;
        long long d = strtoll(p, &end, 10);
        if (end == p) {
            p++; /* a comma or a space */
            continue;
        }
        assert_true(ndim < MANTA_MAX_DIMS);
        shape[ndim++] = d;
        p = end;
    }
    *out = manta_array_of(golden_dtype(path, header), ndim, shape, NULL);
    size_t data = manta_array_bytes(out);
    if (10 + length + data != bytes)
        fail_msg("%s: %s has %zu bytes of data", path, name, bytes - 10 - length);
    out->data = malloc(data ? data : 1);
    assert_non_null(out->data);
    memcpy(out->data, npy + 10 + length, data);
    free(zip);
    return true;
}

static inline void golden_free(manta_array *a)
{
    free(a->data);
    memset(a, 0, sizeof *a);
}

/* Array `name`, which must be there; for the common case. */
static inline manta_array golden_array(const char *path, const char *name)
{
    manta_array a;

    if (!golden_load(path, name, &a)) fail_msg("%s has no array %s", path, name);
    return a;
}

/* The text behind "key": in the recording's config, written into buf up to the
 * comma or brace that ends it, quotes taken off; false when it has no such key
 * or null. Lists keep their brackets. */
static inline bool golden_text(const char *path, const char *key, char *buf, size_t size)
{
    manta_array a = golden_array(path, "config");
    size_t n = (size_t)manta_array_count(&a);
    char *json = malloc(n + 1), quoted[128];

    assert_non_null(json);
    memcpy(json, a.data, n);
    json[n] = '\0';
    golden_free(&a);

    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *p = strstr(json, quoted);
    bool found = false;
    if (p) {
        p += strlen(quoted);
        bool quote = *p == '"', bracket = *p == '[';
        p += quote;
        size_t length = strcspn(p, quote ? "\"" : bracket ? "]" : ",}") + bracket;
        if (length >= size) fail_msg("%s: \"%s\" is too long a text", path, key);
        snprintf(buf, size, "%.*s", (int)length, p);
        found = quote || strcmp(buf, "null") != 0;
    }
    free(json);
    return found;
}

/* The number behind "key": (true is 1, false is 0), or `fallback` without one. */
static inline double golden_number(const char *path, const char *key, double fallback)
{
    char text[64];

    if (!golden_text(path, key, text, sizeof text)) return fallback;
    if (!strcmp(text, "true")) return 1;
    if (!strcmp(text, "false")) return 0;
    char *end;
    double v = strtod(text, &end);
    if (*end || end == text) fail_msg("%s: \"%s\" is %s, no number", path, key, text);
    return v;
}

/* The numbers of the list behind "key":, at most `max`; returns how many. */
static inline int golden_list(const char *path, const char *key, double *v, int max)
{
    char text[512];
    int n = 0;

    if (!golden_text(path, key, text, sizeof text)) return 0;
    for (char *p = text; *p && n < max;) {
        char *end;
        double x = strtod(p, &end);
        if (end == p) {
            p++;
            continue;
        }
        v[n++] = x;
        p = end;
    }
    return n;
}

static inline int golden_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Calls fn(path, ctx) for every recording whose name starts with `prefix`, in
 * order of name; returns how many there were, and fails the test when none. */
static inline int golden_each(const char *prefix, void (*fn)(const char *path, void *ctx), void *ctx)
{
    char *names[2048];
    int n = 0;
    DIR *d = opendir(MANTA_SOURCE_DIR "/tests/golden");

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        if (length < 4 || strcmp(e->d_name + length - 4, ".npz") != 0) continue;
        assert_true(n < 2048);
        names[n] = strdup(e->d_name);
        assert_non_null(names[n++]);
    }
    closedir(d);
    if (n == 0) fail_msg("no recording in tests/golden starts with %s", prefix);
    qsort(names, (size_t)n, sizeof names[0], golden_compare);
    for (int i = 0; i < n; i++) {
        fn(names[i], ctx);
        free(names[i]);
    }
    return n;
}

/* Fails the test unless the n numbers agree: |got - want| <= rel * |want| + abs;
 * a NaN agrees with a NaN only. */
static inline void golden_near(const char *what, const float *got, const float *want, int64_t n, double rel,
                               double abs)
{
    for (int64_t i = 0; i < n; i++) {
        double g = (double)got[i], w = (double)want[i];
        if (isnan(g) && isnan(w)) continue;
        if (!(fabs(g - w) <= rel * fabs(w) + abs))
            fail_msg("%s: element %lld is %.9g, recorded %.9g", what, (long long)i, g, w);
    }
}

#endif
