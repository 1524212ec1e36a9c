/* safetensors_test.c - files of the official library, files of ours, every rule
 * that a header must keep, and what happens when the system does not help. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <manta/data.h>

#include "alloc_fail.h"
#include "base/half.h"
#include "base/mem.h"
#include "format/safetensors/safetensors.h"
#include "ok.h"
#include "recorded.h"
#include "replaced.h"

/* ---- the official library's files ---- */

static void check_golden(safetensors *s)
{
    static const struct {
        const char *name;
        manta_dtype dtype;
        int ndim;
        int64_t count;
    } want[] = {
        {"a", MANTA_DTYPE_I64, 1, 3}, {"b", MANTA_DTYPE_F32, 2, 6}, {"e", MANTA_DTYPE_F32, 2, 0},
        {"s", MANTA_DTYPE_F32, 0, 1}, {"h", MANTA_DTYPE_F16, 1, 2}, {"c", MANTA_DTYPE_BOOL, 1, 1},
    };
    manta_array a;

    assert_int_equal(s->n, 6);
    for (int i = 0; i < 6; i++) {
        int k = safetensors_find(s, want[i].name);
        assert_true(k >= 0);
        assert_int_equal(safetensors_array(s, k, &a), MANTA_OK);
        assert_int_equal(a.dtype, want[i].dtype);
        assert_int_equal(a.ndim, want[i].ndim);
        assert_int_equal(manta_array_count(&a), want[i].count);
        assert_int_equal((uintptr_t)a.data % manta_dtype_size(a.dtype), 0);
    }
    assert_int_equal(safetensors_array(s, safetensors_find(s, "a"), &a), MANTA_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(((int64_t *)a.data)[i], i + 1);
    assert_int_equal(safetensors_array(s, safetensors_find(s, "b"), &a), MANTA_OK);
    for (int i = 0; i < 6; i++) assert_true(((float *)a.data)[i] == (float)i);
    assert_int_equal(safetensors_array(s, safetensors_find(s, "s"), &a), MANTA_OK);
    assert_true(*(float *)a.data == 3);
    assert_int_equal(safetensors_find(s, "nothing"), -1);
    assert_int_equal(s->n_metadata, 2);
    assert_string_equal(safetensors_note(s, "step"), "3");
    assert_string_equal(safetensors_note(s, "format"), "np");
    assert_null(safetensors_note(s, "nothing"));
}

static void a_recorded_file_is_read(void **state)
{
    (void)state;
    int64_t live = mem_live();
    safetensors s = {0};

    assert_ok(safetensors_read(golden("st.safetensors"), &s));
    check_golden(&s);
    safetensors_release(&s);
    assert_ok(safetensors_map(golden("st.safetensors"), &s));
    check_golden(&s);
    safetensors_release(&s);
    assert_int_equal(mem_live(), live);
}

static void types_we_have_not_are_refused_alone(void **state)
{
    (void)state;
    safetensors s = {0};
    manta_array a;

    assert_int_equal(safetensors_read(golden("t2.safetensors"), &s), MANTA_OK);
    assert_int_equal(s.n, 2);
    assert_int_equal(safetensors_array(&s, safetensors_find(&s, "w"), &a), MANTA_OK);
    assert_int_equal(a.dtype, MANTA_DTYPE_BF16);
    assert_int_equal(safetensors_array(&s, safetensors_find(&s, "f8"), &a), MANTA_EUNSUPPORTED);
    assert_error_says("F8_E4M3");
    assert_error_says("'f8'");
    safetensors_release(&s);
}

/* A mapped tensor may be written to; the file stays as it is. */
static void writing_to_a_map_leaves_the_file(void **state)
{
    (void)state;
    const float v[2] = {1, 2};
    int64_t shape[] = {2};
    manta_column c = {"v", manta_array_of(MANTA_DTYPE_F32, 1, shape, (void *)(uintptr_t)v)};
    const char *path = scratch_path("private.safetensors");
    safetensors s = {0};
    manta_array a;

    for (int pass = 0; pass < 2; pass++) {
        if (pass == 0) assert_int_equal(safetensors_write(path, 1, &c, 0, NULL), MANTA_OK);
        assert_int_equal(safetensors_map(path, &s), MANTA_OK);
        assert_int_equal(safetensors_array(&s, 0, &a), MANTA_OK);
        assert_ptr_equal(a.data, s.file + s.data); /* no copy */
        assert_int_equal((uintptr_t)a.data % 64, 0);
        assert_true(((float *)a.data)[0] == 1);
        ((float *)a.data)[0] = 7;
        safetensors_release(&s);
    }
}

/* ---- the rules ---- */

typedef struct rule {
    const char *header;
    int data; /* bytes behind it */
    bool good;
} rule;

#define W(rest) "{\"w\":{" rest "}}"

static const rule rules[] = {
    /* shapes of the whole */
    {"{}", 0, true},
    {"  {}  \n\t", 0, true},
    {"{}", 1, false},
    {"", 0, false},
    {"[]", 0, false},
    {"null", 0, false},
    {"3", 0, false},
    {"\"x\"", 0, false},
    {"{", 0, false},
    {"{}}", 0, false},
    {"{} x", 0, false},
    {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, false},
    {"{\"\xed\xa0\x80\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, false},
    {"\xef\xbb\xbf{}", 0, false},
    /* one tensor */
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, true},
    {W("\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]"), 4, true},
    {W("\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[0,0]"), 0, true},
    {W("\"shape\":[2],\"data_offsets\":[0,8],\"dtype\":\"F32\",\"extra\":[{}]"), 8, true},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, true},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 7, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 9, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]"), 7, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]"), 12, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,-8]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":\"0,8\""), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[-0],\"data_offsets\":[0,0]"), 0, false},
    {W("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"-0\":-0.0"), 1, true},
    {W("\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":null,\"data_offsets\":[0,4]"), 4, false},
    {W("\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, false},
    {W("\"dtype\":\"C128\",\"shape\":[1],\"data_offsets\":[0,16]"), 16, false},
    {W("\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]"), 8, false},
    {W("\"dtype\":null,\"shape\":[2],\"data_offsets\":[0,8]"), 8, false},
    {W("\"shape\":[2],\"data_offsets\":[0,8]"), 8, false},
    {W("\"dtype\":\"F32\",\"data_offsets\":[0,8]"), 8, false},
    {W("\"dtype\":\"F32\",\"shape\":[2]"), 8, false},
    {W(""), 0, false},
    {"{\"w\":null}", 0, false},
    {"{\"w\":3}", 0, false},
    {"{\"w\":[\"F32\",[2],[0,8]]}", 8, true},
    {"{\"w\":[\"F32\",[2]]}", 8, false},
    {W("\"dtype\":{\"F32\":null},\"shape\":[2],\"data_offsets\":[0,8]"), 8, true},
    {W("\"dtype\":{\"F32\":1},\"shape\":[2],\"data_offsets\":[0,8]"), 8, false},
    /* sizes that overflow */
    {W("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), 0, false},
    {W("\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]"), 0, false},
    {W("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]"), 0, false},
    {W("\"dtype\":\"U8\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]"), 0, true},
    {W("\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,9223372036854775807]"), 1,
     false},
    {W("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[18446744073709551615,0]"), 1, false},
    /* types below a byte */
    {W("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]"), 1, true},
    {W("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, false},
    {W("\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]"), 3, true},
    {W("\"dtype\":\"F6_E3M2\",\"shape\":[2],\"data_offsets\":[0,2]"), 2, false},
    /* several tensors: in any order, without gap, overlap or alias */
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     3, true},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     4, false},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     3, false},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
     2, false},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
     "\"c\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[2,2]}}",
     2, true},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[1,1]}}",
     2, false},
    /* metadata */
    {"{\"__metadata__\":{}}", 0, true},
    {"{\"__metadata__\":null}", 0, true},
    {"{\"__metadata__\":{\"a\":\"\",\"b\":\"\\u00e9\"}}", 0, true},
    {"{\"__metadata__\":{\"a\":1}}", 0, false},
    {"{\"__metadata__\":{\"a\":null}}", 0, false},
    {"{\"__metadata__\":[]}", 0, false},
    {"{\"__metadata__\":\"x\"}", 0, false},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, false},
    /* what is read twice: the first is always refused, the second by us alone */
    {W("\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, false},
    {"{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, false},
};

static manta_status parse(const char *header, size_t n, int data, safetensors *s, uint8_t **memory)
{
    uint8_t *bytes = calloc(1, 8 + n + (size_t)data + 1);

    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, n);
    *memory = bytes;
    return safetensors_parse("file", bytes, 8 + n + (size_t)data, s);
}

static void headers_against_the_rules_are_refused(void **state)
{
    (void)state;
    int64_t live = mem_live();

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        safetensors s = {0};
        uint8_t *memory = NULL;
        manta_status st = parse(rules[i].header, strlen(rules[i].header), rules[i].data, &s, &memory);
        if (rules[i].good && st) fail_msg("rule %zu, %s: %s", i, rules[i].header, manta_error_text());
        if (!rules[i].good && st != MANTA_ECORRUPT) fail_msg("rule %zu, %s: accepted", i, rules[i].header);
        if (st) assert_int_equal(strncmp(manta_error_text(), "file", 4), 0);
        safetensors_release(&s);
        free(memory);
    }
    assert_int_equal(mem_live(), live);
}

static void padding_with_nul_is_refused(void **state)
{
    (void)state;
    safetensors s = {0};
    uint8_t *memory = NULL;

    assert_int_equal(parse("{}\0\0", 4, 0, &s, &memory), MANTA_ECORRUPT);
    free(memory);
}

static void nesting_has_a_limit(void **state)
{
    (void)state;
    for (int depth = 120; depth < 140; depth++) {
        char text[512] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":";
        safetensors s = {0};
        uint8_t *memory = NULL;
        size_t n = strlen(text);
        memset(text + n, '[', (size_t)depth);
        memset(text + n + depth, ']', (size_t)depth);
        memcpy(text + n + 2 * depth, "}}", 3);
        /* two objects around it: 127 in all is the deepest there may be */
        assert_int_equal(parse(text, strlen(text), 0, &s, &memory),
                         depth + 2 <= 127 ? MANTA_OK : MANTA_ECORRUPT);
        safetensors_release(&s);
        free(memory);
    }
}

static void wrong_header_lengths_are_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {3,          100000000,     100000001, (uint64_t)1 << 63,
                                       UINT64_MAX, UINT64_MAX - 7};
    safetensors s = {0};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t bytes[10] = {0};
        for (int k = 0; k < 8; k++) bytes[k] = (uint8_t)(lengths[i] >> 8 * k);
        memcpy(bytes + 8, "{}", 2);
        assert_int_equal(safetensors_parse("file", bytes, sizeof bytes, &s), MANTA_ECORRUPT);
    }
}

/* Every shorter file is refused, and nothing of it is left in memory. */
static void a_cut_file_is_refused(void **state)
{
    (void)state;
    safetensors s = {0};
    uint8_t whole[4096];
    FILE *f = fopen(golden("st.safetensors"), "rb");
    size_t n = f ? fread(whole, 1, sizeof whole, f) : 0;
    int64_t live = mem_live();

    assert_int_equal(n, 441);
    fclose(f);
    for (size_t k = 0; k < n; k++) {
        uint8_t *part = malloc(k + 1); /* of its own, so that a sanitizer sees what reads beyond */
        memcpy(part, whole, k);
        part = realloc(part, k ? k : 1);
        assert_int_equal(safetensors_parse("file", part, k, &s), MANTA_ECORRUPT);
        assert_int_equal(mem_live(), live);
        free(part);
    }
    for (size_t k = 0; k < 20; k++) {
        assert_int_equal(safetensors_map(scratch_file("cut", whole, k), &s), MANTA_ECORRUPT);
        assert_int_equal(safetensors_read(scratch_path("cut"), &s), MANTA_ECORRUPT);
    }
    assert_int_equal(safetensors_map(scratch_path("none"), &s), MANTA_ENOENT);
    assert_int_equal(safetensors_read(scratch_path("none"), &s), MANTA_ENOENT);
    assert_int_equal(safetensors_map(scratch_dir, &s), MANTA_EINVAL);
    assert_int_equal(mem_live(), live);
}

/* A header of any length, so that elements lie at odd addresses. */
static void a_header_of_any_length_is_read(void **state)
{
    (void)state;
    for (int pad = 0; pad < 9; pad++) {
        char text[128] = W("\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]");
        const double want[2] = {1.5, -2};
        safetensors s = {0};
        uint8_t *memory = NULL;
        manta_array a, again;
        size_t n = strlen(text);
        memset(text + n, ' ', (size_t)pad);
        text[n + (size_t)pad] = '\0';
        assert_int_equal(parse(text, n + (size_t)pad, 16, &s, &memory), MANTA_OK);
        memcpy(memory + 8 + n + pad, want, 16);
        assert_int_equal(safetensors_array(&s, 0, &a), MANTA_OK);
        assert_int_equal((uintptr_t)a.data % 8, 0);
        assert_memory_equal(a.data, want, 16);
        assert_int_equal(safetensors_array(&s, 0, &again), MANTA_OK);
        assert_ptr_equal(a.data, again.data);
        safetensors_release(&s);
        free(memory);
    }
}

static void more_axes_than_we_have_are_refused(void **state)
{
    (void)state;
    safetensors s = {0};
    uint8_t *memory = NULL;
    manta_array a;

    assert_int_equal(
        parse(W("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 67, 1, &s, &memory),
        MANTA_ECORRUPT); /* a length one short: the text is cut */
    free(memory);
    const char *text = W("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]");
    assert_int_equal(parse(text, strlen(text), 1, &s, &memory), MANTA_OK);
    assert_int_equal(safetensors_array(&s, 0, &a), MANTA_EUNSUPPORTED);
    safetensors_release(&s);
    free(memory);
}

/* ---- writing ---- */

static float grid[6] = {0, 1, 2, 3, 4, 5};
static int64_t counter = -7;
static uint8_t bytes5[5] = {9, 8, 7, 6, 5};
static uint16_t halves[3] = {1, 2, 3};

static int columns(manta_column *c)
{
    static const int64_t two_three[] = {2, 3}, five[] = {5}, three[] = {3}, none[] = {0, 4};
    int n = 0;

    c[n++] = (manta_column){"bytes", manta_array_of(MANTA_DTYPE_U8, 1, five, bytes5)};
    c[n++] = (manta_column){"grid", manta_array_of(MANTA_DTYPE_F32, 2, two_three, grid)};
    c[n++] = (manta_column){"turned", manta_array_of(MANTA_DTYPE_F32, 2, two_three, grid)};
    c[n - 1].array.shape[0] = 3;
    c[n - 1].array.shape[1] = 2;
    c[n - 1].array.strides[0] = 1;
    c[n - 1].array.strides[1] = 3;
    c[n++] = (manta_column){"counter", manta_array_of(MANTA_DTYPE_I64, 0, NULL, &counter)};
    c[n++] = (manta_column){"none", manta_array_of(MANTA_DTYPE_F64, 2, none, grid)};
    c[n++] = (manta_column){"h", manta_array_of(MANTA_DTYPE_F16, 1, three, halves)};
    c[n++] = (manta_column){"b", manta_array_of(MANTA_DTYPE_BF16, 1, three, halves)};
    c[n++] = (manta_column){"i \"\\\n\xc3\xa9", manta_array_of(MANTA_DTYPE_I32, 1, three, grid)};
    c[n++] = (manta_column){"flags", manta_array_of(MANTA_DTYPE_BOOL, 1, three, bytes5)};
    return n;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    manta_column c[16];
    int n = columns(c);
    safetensors_pair notes[] = {{"position", "{\"epoch\":3}"}, {"a", ""}, {"\xc3\xa9", "\t"}};
    const char *path = scratch_path("w.safetensors");
    safetensors s = {0};
    manta_array a;

    assert_ok(safetensors_write(path, n, c, 3, notes));
    assert_int_equal(safetensors_map(path, &s), MANTA_OK);
    assert_int_equal(s.n, n);
    assert_int_equal(s.data % 64, 0);
    assert_string_equal(s.tensors[0].name, "counter"); /* the largest elements first, then by name */
    assert_string_equal(s.tensors[1].name, "none");
    assert_string_equal(s.tensors[2].name, "grid");
    for (int i = 0; i < n; i++) {
        int k = safetensors_find(&s, c[i].name);
        assert_true(k >= 0);
        assert_int_equal(safetensors_array(&s, k, &a), MANTA_OK);
        assert_int_equal(a.dtype, c[i].array.dtype);
        assert_int_equal(a.ndim, c[i].array.ndim);
        assert_memory_equal(a.shape, c[i].array.shape, (size_t)a.ndim * sizeof *a.shape);
        assert_null(s.tensors[k].copy); /* aligned as written */
        if (manta_array_is_contiguous(&c[i].array)) {
            assert_memory_equal(a.data, c[i].array.data, manta_array_bytes(&a));
        }
    }
    const float turned[] = {0, 3, 1, 4, 2, 5};
    assert_int_equal(safetensors_array(&s, safetensors_find(&s, "turned"), &a), MANTA_OK);
    assert_memory_equal(a.data, turned, sizeof turned);
    assert_int_equal(s.n_metadata, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(s.metadata[i].key, notes[i].key);
        assert_string_equal(s.metadata[i].value, notes[i].value);
    }
    safetensors_release(&s);
}

/* The same arrays in any order make the same bytes. */
static void any_order_of_arrays_makes_the_same_bytes(void **state)
{
    (void)state;
    manta_column c[16], d[16];
    int n = columns(c);
    uint8_t one[4096], two[4096];
    size_t k;

    for (int i = 0; i < n; i++) d[i] = c[n - 1 - i];
    assert_int_equal(safetensors_write(scratch_path("1.safetensors"), n, c, 0, NULL), MANTA_OK);
    assert_int_equal(safetensors_write(scratch_path("2.safetensors"), n, d, 0, NULL), MANTA_OK);
    k = replaced_load(scratch_path("1.safetensors"), one, sizeof one);
    assert_true(k > 64);
    assert_int_equal(replaced_load(scratch_path("2.safetensors"), two, sizeof two), k);
    assert_memory_equal(one, two, k);
}

static void bad_contents_are_not_written(void **state)
{
    (void)state;
    manta_column c[2] = {{"a", manta_array_of(MANTA_DTYPE_F32, 0, NULL, grid)},
                         {"a", manta_array_of(MANTA_DTYPE_F32, 0, NULL, grid)}};
    safetensors_pair twice[] = {{"k", "1"}, {"k", "2"}}, wrong[] = {{"k", "\xff"}};
    const char *path = scratch_path("no.safetensors");

    assert_int_equal(safetensors_check(path, 1, c), MANTA_OK);
    assert_int_equal(safetensors_write(path, 2, c, 0, NULL), MANTA_EINVAL);
    assert_error_says("'a'");
    assert_int_equal(safetensors_check(path, 2, c), MANTA_EINVAL);
    assert_int_equal(safetensors_write(path, 1, c, 2, twice), MANTA_EINVAL);
    assert_int_equal(safetensors_write(path, 1, c, 1, wrong), MANTA_EINVAL);
    c[0].name = "__metadata__";
    assert_int_equal(safetensors_write(path, 1, c, 0, NULL), MANTA_EINVAL);
    assert_int_equal(safetensors_check(path, 1, c), MANTA_EINVAL);
    c[0].name = "\xc3";
    assert_int_equal(safetensors_write(path, 1, c, 0, NULL), MANTA_EINVAL);
    assert_int_equal(safetensors_check(path, 1, c), MANTA_EINVAL);
    c[0].name = NULL;
    assert_int_equal(safetensors_write(path, 1, c, 0, NULL), MANTA_EINVAL);
    assert_int_equal(safetensors_check(path, 1, c), MANTA_EINVAL);
    c[0].name = "a";
    c[0].array.dtype = MANTA_DTYPE_COUNT;
    assert_int_equal(safetensors_write(path, 1, c, 0, NULL), MANTA_EINVAL);
    assert_int_equal(safetensors_check(path, 1, c), MANTA_EINVAL);
    assert_int_equal(access(path, F_OK), -1);
}

/* Arrays larger than any buffer between them and the file, turned and straight. */
static void large_arrays_are_written_and_read(void **state)
{
    (void)state;
    enum { ROWS = 257, COLUMNS = 1031 };
    float *x = malloc(sizeof *x * ROWS * COLUMNS);
    const int64_t shape[] = {ROWS, COLUMNS};
    manta_column c[2] = {{"x", manta_array_of(MANTA_DTYPE_F32, 2, shape, x)},
                         {"y", manta_array_of(MANTA_DTYPE_F32, 2, shape, x)}};
    safetensors s = {0};
    manta_array a;

    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)i;
    c[1].array.shape[0] = COLUMNS;
    c[1].array.shape[1] = ROWS;
    c[1].array.strides[0] = 1;
    c[1].array.strides[1] = COLUMNS;
    assert_int_equal(safetensors_write(scratch_path("large.safetensors"), 2, c, 0, NULL), MANTA_OK);
    assert_int_equal(safetensors_read(scratch_path("large.safetensors"), &s), MANTA_OK);
    assert_int_equal(safetensors_array(&s, 0, &a), MANTA_OK);
    assert_memory_equal(a.data, x, sizeof *x * ROWS * COLUMNS);
    assert_int_equal(safetensors_array(&s, 1, &a), MANTA_OK);
    for (int i = 0; i < COLUMNS; i++) {
        for (int k = 0; k < ROWS; k++) {
            assert_true(((float *)a.data)[i * ROWS + k] == x[k * COLUMNS + i]);
        }
    }
    safetensors_release(&s);
    free(x);
}

/* ---- the system does not help ---- */

static manta_status write_some(const char *path, int n)
{
    manta_column c[16];

    columns(c);
    return safetensors_write(path, n, c, 0, NULL);
}

static void a_fault_while_writing_leaves_the_old_file_or_the_new(void **state)
{
    (void)state;
    manta_column c[16];

    replaced_whole_or_not(scratch_path("fault.safetensors"), write_some, columns(c));
}

/* A table that ends the process at its n-th call, before the call or after it. */
static int kill_at, kill_calls;
static bool kill_after;

static void kill_here(bool after)
{
    if (after == kill_after && kill_calls == kill_at) raise(SIGKILL);
}

#define KILLED(type, call)                                                                                   \
    do {                                                                                                     \
        kill_calls++;                                                                                        \
        kill_here(false);                                                                                    \
        type result = (call);                                                                                \
        kill_here(true);                                                                                     \
        return result;                                                                                       \
    } while (0)

static int kill_open(const char *path, int flags, mode_t mode)
{
    KILLED(int, os_real.open(path, flags, mode));
}

static ssize_t kill_write(int fd, const void *b, size_t n)
{
    KILLED(ssize_t, os_real.write(fd, b, n));
}

static int kill_fsync(int fd)
{
    KILLED(int, os_real.fsync(fd));
}

static int kill_fallocate(int fd, int mode, off_t at, off_t n)
{
    KILLED(int, os_real.fallocate(fd, mode, at, n));
}

static int kill_close(int fd)
{
    KILLED(int, os_real.close(fd));
}

static int kill_rename(const char *from, const char *to)
{
    KILLED(int, os_real.rename(from, to));
}

/* Killed at any call that changes something: the old file or the new one, whole. */
static void a_kill_while_writing_leaves_the_old_file_or_the_new(void **state)
{
    (void)state;
    manta_column c[16];
    int n = columns(c), seen_old = 0, seen_new = 0;
    const char *path = scratch_path("kill.safetensors");
    uint8_t before[4096], after[4096], wanted[4096];
    size_t n_before, n_wanted, k;
    os_sys table = os_real;

    table.open = kill_open;
    table.write = kill_write;
    table.fsync = kill_fsync;
    table.fallocate = kill_fallocate;
    table.close = kill_close;
    table.rename = kill_rename;
    assert_int_equal(safetensors_write(path, n, c, 0, NULL), MANTA_OK);
    n_wanted = replaced_load(path, wanted, sizeof wanted);
    for (int round = 2; round < 200; round++) {
        int status;
        pid_t child;
        assert_int_equal(safetensors_write(path, 1, c, 0, NULL), MANTA_OK);
        n_before = replaced_load(path, before, sizeof before);
        kill_at = round / 2;
        kill_after = round % 2;
        kill_calls = 0;
        if ((child = fork()) == 0) {
            os_use(&table);
            _exit(safetensors_write(path, n, c, 0, NULL) ? 1 : 0);
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        k = replaced_load(path, after, sizeof after);
        if (k == n_before && memcmp(after, before, k) == 0) {
            seen_old++;
        } else {
            assert_int_equal(k, n_wanted);
            assert_memory_equal(after, wanted, k);
            seen_new++;
        }
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            break;
        }
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_true(seen_old > 5 && seen_new > 2);
}

static void a_fault_while_reading_is_reported(void **state)
{
    (void)state;
    manta_status (*const open[])(const char *, safetensors *) = {safetensors_read, safetensors_map};

    for (int way = 0; way < 2; way++) {
        int at = 1;
        for (;; at++) {
            safetensors s = {0};
            int64_t live = mem_live();
            fault_begin((fault_plan){.at = at, .err = EIO});
            manta_status st = open[way](golden("st.safetensors"), &s);
            int64_t hits = fault_end();
            if (!st) check_golden(&s); /* a close that failed is no harm */
            safetensors_release(&s);
            assert_int_equal(mem_live(), live);
            if (hits == 0) break;
        }
        assert_true(at > 3);
    }
}

static manta_status read_one_array(void *ctx)
{
    safetensors s = {0};
    manta_array a;

    (void)ctx;
    manta_status st = safetensors_read(golden("t2.safetensors"), &s);
    if (!st) st = safetensors_array(&s, 0, &a);
    safetensors_release(&s);
    return st;
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    assert_true(alloc_fail_each(read_one_array, NULL) >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recorded_file_is_read),
        cmocka_unit_test(types_we_have_not_are_refused_alone),
        cmocka_unit_test(writing_to_a_map_leaves_the_file),
        cmocka_unit_test(headers_against_the_rules_are_refused),
        cmocka_unit_test(padding_with_nul_is_refused),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(wrong_header_lengths_are_refused),
        cmocka_unit_test(a_cut_file_is_refused),
        cmocka_unit_test(a_header_of_any_length_is_read),
        cmocka_unit_test(more_axes_than_we_have_are_refused),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(any_order_of_arrays_makes_the_same_bytes),
        cmocka_unit_test(bad_contents_are_not_written),
        cmocka_unit_test(large_arrays_are_written_and_read),
        cmocka_unit_test(a_fault_while_writing_leaves_the_old_file_or_the_new),
        cmocka_unit_test(a_kill_while_writing_leaves_the_old_file_or_the_new),
        cmocka_unit_test(a_fault_while_reading_is_reported),
        cmocka_unit_test(failed_allocations_are_reported),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
