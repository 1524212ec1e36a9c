/* h5_test.c - what our writer of HDF5 makes, and what the reader takes and refuses.
 * Its other inputs were made by libhdf5 itself: golden/make_h5.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "format/hdf5/h5.h"
#include "format/hdf5/h5_out.h"
#include "ok.h"
#include "os/file.h"

/* ---- our writer ---- */

static manta_status to_buf(void *ctx, const void *data, size_t n)
{
    buf_add(ctx, data, n);
    return MANTA_OK;
}

/* An aligned copy of the bytes, as readers are given them. */
static uint8_t *image_of(const h5_out *o, size_t *size)
{
    buf b = {0};
    uint8_t *copy;

    assert_int_equal(h5_out_emit(o, to_buf, &b), MANTA_OK);
    assert_int_equal(b.n, o->size);
    copy = mem_try_raw(b.n);
    memcpy(copy, b.at, b.n);
    *size = b.n;
    buf_release(&b);
    return copy;
}

/* Groups of every size around the limits of a leaf and of a B-tree node. */
static void a_tree_of_any_size_reads_back(void **state)
{
    static const int sizes[] = {0, 1, 7, 8, 9, 255, 256, 257, 600, 8193};
    (void)state;

    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int n = sizes[k];
        float *numbers = mem_new((size_t)(n + 1) * sizeof *numbers);
        h5_out o = {0};
        h5_file *f = NULL;
        manta_saved *s = mem_new(sizeof *s);
        h5_names names = {0};
        size_t size;
        uint8_t *image;

        for (int i = 0; i < n; i++) {
            char path[48];
            manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &numbers[i]);
            numbers[i] = (float)i;
            snprintf(path, sizeof path, "layers/x/vars/%d", i);
            h5_out_dataset(&o, path, &a);
        }
        h5_out_group(&o, "layers/x/vars");
        h5_out_group(&o, "vars");
        h5_out_layout(&o);
        image = image_of(&o, &size);
        assert_int_equal(h5_open("made", image, size, &f), MANTA_OK);
        assert_int_equal(h5_list(f, "layers/x/vars", &names), MANTA_OK);
        assert_int_equal(names.n, n);
        for (int i = 0; i < n; i += n / 50 + 1) {
            char path[48];
            const manta_array *a;
            snprintf(path, sizeof path, "layers/x/vars/%d", i);
            assert_int_equal(h5_read(f, path, s, path), MANTA_OK);
            a = manta_saved_find(s, path);
            assert_true(((const float *)a->data)[0] == (float)i);
            assert_true((uint8_t *)a->data > image && (uint8_t *)a->data < image + size); /* no copy */
        }
        h5_names_release(&names);
        manta_saved_free(s);
        h5_close(f);
        h5_out_release(&o);
        mem_try_free(image);
        mem_free(numbers);
    }
}

static void shapes_and_types_read_back(void **state)
{
    float w[6] = {1, 2, 3, 4, 5, 6}, one = 2.5f;
    int64_t count = 1ll << 40;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 3}, w);
    manta_array scalar = manta_array_of(MANTA_DTYPE_F32, 0, NULL, &one);
    manta_array whole = manta_array_of(MANTA_DTYPE_I64, 0, NULL, &count);
    manta_array empty = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){0, 3}, w);
    h5_out o = {0};
    h5_file *f = NULL;
    manta_saved *s = mem_new(sizeof *s);
    size_t size;
    uint8_t *image;
    h5_kind kind;

    (void)state;
    h5_out_dataset(&o, "a", &a);
    h5_out_dataset(&o, "deep/scalar", &scalar);
    h5_out_dataset(&o, "deep/whole", &whole);
    h5_out_dataset(&o, "deep/empty", &empty);
    h5_out_layout(&o);
    image = image_of(&o, &size);
    assert_int_equal(h5_open("made", image, size, &f), MANTA_OK);
    assert_int_equal(h5_read(f, "a", s, "a"), MANTA_OK);
    assert_int_equal(h5_read(f, "deep/scalar", s, "scalar"), MANTA_OK);
    assert_int_equal(h5_read(f, "deep/whole", s, "whole"), MANTA_OK);
    assert_int_equal(h5_read(f, "deep/empty", s, "empty"), MANTA_OK);
    assert_memory_equal(manta_saved_find(s, "a")->data, w, sizeof w);
    assert_int_equal(manta_saved_find(s, "scalar")->ndim, 0);
    assert_true(*(float *)manta_saved_find(s, "scalar")->data == 2.5f);
    assert_int_equal(*(int64_t *)manta_saved_find(s, "whole")->data, 1ll << 40);
    assert_int_equal(manta_array_count(manta_saved_find(s, "empty")), 0);
    assert_int_equal(h5_find(f, "deep", &kind), MANTA_OK);
    assert_int_equal(kind, H5_GROUP);
    assert_int_equal(h5_find(f, "a/b", &kind), MANTA_OK);
    assert_int_equal(kind, H5_NOTHING);
    assert_int_equal(h5_read(f, "nowhere", s, "n"), MANTA_ENOENT);
    assert_int_equal(h5_read(f, "deep", s, "d"), MANTA_ENOENT);
    assert_int_equal(h5_read(f, "a", s, "a"), MANTA_EEXIST);
    manta_saved_free(s);
    h5_close(f);
    h5_out_release(&o);
    mem_try_free(image);
}

static manta_status refuse_after(void *ctx, const void *data, size_t n)
{
    (void)data;
    (void)n;
    return --*(int *)ctx < 0 ? manta_fail(MANTA_ENOSPC, "full") : MANTA_OK;
}

static void a_failing_sink_ends_the_writing(void **state)
{
    float w[100] = {0};
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){100}, w);
    h5_out o = {0};

    (void)state;
    h5_out_dataset(&o, "a", &a);
    h5_out_dataset(&o, "b", &a);
    h5_out_layout(&o);
    for (int n = 0; n < 3; n++) {
        int left = n;
        assert_int_equal(h5_out_emit(&o, refuse_after, &left), MANTA_ENOSPC);
    }
    h5_out_release(&o);
}

/* ---- attributes of our making ---- */

static void attributes_read_back(void **state)
{
    static char *const none[1] = {NULL};
    char *many[H5_OUT_TEXTS], *long_text = mem_new(100001);
    float w = 3;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 0, NULL, &w);
    h5_out o = {0};
    h5_file *f = NULL;
    manta_saved *s = mem_new(sizeof *s);
    h5_names texts = {0};
    size_t size;
    uint8_t *image;
    bool found;
    char *text = NULL;

    (void)state;
    memset(long_text, 'l', 100000);
    for (int i = 0; i < H5_OUT_TEXTS; i++) many[i] = mem_printf("%.*s%d", i % 9, "________", i);
    h5_out_text(&o, "", "config", long_text);
    for (int i = 0; i < 10; i++) { /* more texts than one collection takes */
        char name[16];
        snprintf(name, sizeof name, "names%d", i);
        h5_out_texts(&o, "group", name, H5_OUT_TEXTS, many);
    }
    h5_out_dataset(&o, "group/x", &a);
    h5_out_texts(&o, "group/inner", "weight_names", 0, none);
    h5_out_text(&o, "group/inner", "nothing", "");
    assert_false(h5_out_takes(&o, "group/x"));
    assert_false(h5_out_takes(&o, "group/x/below"));
    assert_false(h5_out_takes(&o, "group/inner"));
    assert_true(h5_out_takes(&o, "group/inner/y"));
    h5_out_layout(&o);
    image = image_of(&o, &size);
    assert_int_equal(h5_open("made", image, size, &f), MANTA_OK);
    assert_int_equal(h5_text(f, "", "config", 1 << 20, &text), MANTA_OK);
    assert_string_equal(text, long_text);
    mem_free(text);
    assert_int_equal(h5_text(f, "", "config", 99999, &text), MANTA_ECORRUPT);
    assert_null(text);
    assert_int_equal(h5_texts(f, "group", "names", &texts, &found), MANTA_OK);
    assert_true(found);
    assert_int_equal(texts.n, 10 * H5_OUT_TEXTS);
    for (size_t i = 0; i < texts.n; i++) assert_string_equal(texts.at[i], many[i % H5_OUT_TEXTS]);
    h5_names_release(&texts);
    assert_int_equal(h5_texts(f, "group/inner", "weight_names", &texts, &found), MANTA_OK);
    assert_true(found);
    assert_int_equal(texts.n, 0);
    assert_int_equal(h5_text(f, "group/inner", "nothing", 10, &text), MANTA_OK);
    assert_string_equal(text, "");
    mem_free(text);
    assert_int_equal(h5_read(f, "group/x", s, "x"), MANTA_OK);
    for (int i = 0; i < H5_OUT_TEXTS; i++) mem_free(many[i]);
    mem_free(long_text);
    manta_saved_free(s);
    h5_close(f);
    h5_out_release(&o);
    mem_try_free(image);
}

/* ---- files that libhdf5 made (golden/make_h5.py) ---- */

typedef struct golden {
    uint8_t *data;
    size_t size;
    h5_file *f;
} golden;

static golden load(const char *name)
{
    char *path = mem_printf("%s/tests/unit/format/golden/%s", MANTA_SOURCE_DIR, name);
    golden g = {0};
    void *data = NULL;

    assert_int_equal(file_read(path, 1 << 20, &data, &g.size), MANTA_OK);
    g.data = data;
    assert_int_equal(h5_open(name, g.data, g.size, &g.f), MANTA_OK);
    mem_free(path);
    return g;
}

static void unload(golden *g)
{
    h5_close(g->f);
    mem_try_free(g->data);
}

static double element(const manta_array *a, int64_t i)
{
    switch (a->dtype) {
    case MANTA_DTYPE_F32: return (double)((const float *)a->data)[i];
    case MANTA_DTYPE_F64: return ((const double *)a->data)[i];
    case MANTA_DTYPE_F16: return (double)f16_to_f32(((const uint16_t *)a->data)[i]);
    case MANTA_DTYPE_BF16: return (double)bf16_to_f32(((const uint16_t *)a->data)[i]);
    case MANTA_DTYPE_I32: return ((const int32_t *)a->data)[i];
    case MANTA_DTYPE_I64: return (double)((const int64_t *)a->data)[i];
    default: return ((const uint8_t *)a->data)[i];
    }
}

/* What make_h5.py puts there: 0, 1, 2, ..., and 7 where it wrote nothing. */
static double expected(const char *name, manta_dtype t, int64_t i)
{
    if (!strcmp(name, "unwritten") || (!strcmp(name, "sparse") && (i < 4 || i >= 8)) ||
        (!strcmp(name, "pages-sparse") && i != 1030)) {
        return 7;
    }
    return t == MANTA_DTYPE_U8 ? (double)(i % 256) : (double)i;
}

/* Reads every dataset in a group; how many there were. */
static int read_group(h5_file *f, const char *group, const char *skip)
{
    h5_names names = {0};
    int n = 0;

    assert_int_equal(h5_list(f, group, &names), MANTA_OK);
    for (size_t k = 0; k < names.n; k++) {
        char *path = mem_printf("%s%s%s", group, *group ? "/" : "", names.at[k]);
        manta_saved *s = mem_new(sizeof *s);
        const manta_array *a;
        h5_kind kind = H5_NOTHING;
        if (k) assert_true(strcmp(names.at[k - 1], names.at[k]) < 0);
        if (strcmp(path, skip)) assert_int_equal(h5_find(f, path, &kind), MANTA_OK);
        if (kind == H5_GROUP) n += read_group(f, path, skip);
        if (kind == H5_DATASET) {
            int ndim;
            int64_t shape[MANTA_MAX_DIMS];
            assert_int_equal(h5_read(f, path, s, "x"), MANTA_OK);
            a = manta_saved_find(s, "x");
            assert_int_equal(h5_shape(f, path, &ndim, shape), MANTA_OK);
            assert_int_equal(ndim, a->ndim);
            assert_memory_equal(shape, a->shape, (size_t)ndim * sizeof *shape);
            for (int64_t i = 0; i < manta_array_count(a); i++) {
                if (element(a, i) != expected(names.at[k], a->dtype, i)) {
                    fail_msg("%s: element %d is %g", path, (int)i, element(a, i));
                }
            }
            n++;
        }
        manta_saved_free(s);
        mem_free(path);
    }
    h5_names_release(&names);
    return n;
}

static void every_way_to_store_a_dataset_is_read(void **state)
{
    static const struct {
        const char *file;
        int datasets;
    } files[] = {{"old.h5", 35}, {"old-front.h5", 1}, {"new-v18.h5", 2},
                 {"new.h5", 35}, {"new-index.h5", 8}, {"new-dense.h5", 0}};

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int64_t live = mem_live();
        golden g = load(files[i].file);
        assert_int_equal(read_group(g.f, "", "elsewhere"), files[i].datasets);
        unload(&g);
        assert_int_equal(mem_live(), live);
    }
}

static void types_become_ours(void **state)
{
    static const struct {
        const char *name;
        manta_dtype dtype;
    } want[] = {
        {"little-f4", MANTA_DTYPE_F32}, {"big-f4", MANTA_DTYPE_F32},    {"big-f8", MANTA_DTYPE_F64},
        {"little-f2", MANTA_DTYPE_F16}, {"bfloat16", MANTA_DTYPE_BF16}, {"big-i4", MANTA_DTYPE_I32},
        {"byte-u1", MANTA_DTYPE_U8},    {"byte-i1", MANTA_DTYPE_I64},   {"little-u4", MANTA_DTYPE_I64},
        {"big-u8", MANTA_DTYPE_I64},    {"bool", MANTA_DTYPE_BOOL},     {"of-named-type", MANTA_DTYPE_F32}};
    static const char *const files[] = {"old.h5", "new.h5"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        golden g = load(files[k]);
        manta_saved *s = mem_new(sizeof *s);
        h5_kind kind;
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
            char *path = mem_printf("types/%s", want[i].name);
            assert_int_equal(h5_read(g.f, path, s, path), MANTA_OK);
            assert_int_equal(manta_saved_find(s, path)->dtype, want[i].dtype);
            mem_free(path);
        }
        assert_int_equal(h5_find(g.f, "types/named-type", &kind), MANTA_OK);
        assert_int_equal(kind, H5_NOTHING);
        assert_int_equal(h5_find(g.f, "types/little-f4/x", &kind), MANTA_OK);
        assert_int_equal(kind, H5_NOTHING);
        manta_saved_free(s);
        unload(&g);
    }
}

static void texts_of_all_kinds_are_read(void **state)
{
    static const char *const files[] = {"old.h5", "new.h5"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        golden g = load(files[k]);
        h5_names t = {0};
        char *text = NULL;
        bool found;
        assert_int_equal(h5_text(g.f, "", "model_config", 100, &text), MANTA_OK);
        assert_string_equal(text, "{\"a\": \"\303\244\"}");
        mem_free(text);
        assert_int_equal(h5_text(g.f, "", "long", 5000, &text), MANTA_OK);
        assert_int_equal(strlen(text), 5000);
        mem_free(text);
        assert_int_equal(h5_text(g.f, "", "missing", 100, &text), MANTA_OK);
        assert_null(text);
        assert_int_equal(h5_text(g.f, "", "number", 100, &text), MANTA_ECORRUPT);
        assert_error_says("'number' is not text");
        assert_int_equal(h5_texts(g.f, "", "many", &t, &found), MANTA_OK);
        assert_int_equal(t.n, 3);
        assert_string_equal(t.at[0], "first");
        assert_string_equal(t.at[1], "");
        assert_string_equal(t.at[2], "third");
        h5_names_release(&t);
        assert_int_equal(h5_texts(g.f, "", "fixed", &t, &found), MANTA_OK);
        assert_int_equal(t.n, 2);
        assert_string_equal(t.at[0], "one");
        assert_string_equal(t.at[1], "three");
        h5_names_release(&t);
        assert_int_equal(h5_texts(g.f, "", "empty", &t, &found), MANTA_OK);
        assert_true(found);
        assert_int_equal(t.n, 0);
        assert_int_equal(h5_texts(g.f, "", "list", &t, &found), MANTA_OK);
        assert_true(found);
        assert_int_equal(t.n, 3);
        assert_string_equal(t.at[2], "c");
        h5_names_release(&t);
        unload(&g);
    }
}

/* Links and attributes that have moved to heaps of their own. */
static void dense_groups_are_read(void **state)
{
    golden g = load("new-dense.h5");
    h5_names names = {0};
    char *text;

    (void)state;
    assert_int_equal(h5_list(g.f, "links", &names), MANTA_OK);
    assert_int_equal(names.n, 120);
    for (int i = 0; i < 120; i++) {
        char *path = mem_printf("links/link-%d-%.*s", i, i % 30, "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn");
        h5_kind kind;
        assert_int_equal(h5_find(g.f, path, &kind), MANTA_OK);
        assert_int_equal(kind, H5_GROUP);
        mem_free(path);
    }
    for (int i = 0; i < 60; i++) {
        char *name = mem_printf("text-%d", i), *value = mem_printf("value %d", i);
        assert_int_equal(h5_text(g.f, "links", name, 100, &text), MANTA_OK);
        assert_string_equal(text, value);
        mem_free(text);
        mem_free(name);
        mem_free(value);
    }
    assert_int_equal(h5_text(g.f, "links", "fixed-long", 5000, &text), MANTA_OK);
    assert_int_equal(strlen(text), 5000);
    mem_free(text);
    h5_names_release(&names);
    unload(&g);
}

static void what_lies_elsewhere_or_nowhere_is_refused(void **state)
{
    static const struct {
        const char *at;
        manta_status code;
        const char *word;
    } want[] = {{"soft", MANTA_EUNSUPPORTED, "link"},
                {"outer/root", MANTA_EUNSUPPORTED, "link"},
                {"external", MANTA_EUNSUPPORTED, "another file"},
                {"virtual", MANTA_EUNSUPPORTED, "another file"},
                {"text", MANTA_EUNSUPPORTED, "type"},
                {"huge", MANTA_ECORRUPT, "bytes"},
                {"huge-chunks", MANTA_ECORRUPT, "bytes"},
                {"scale-offset", MANTA_EUNSUPPORTED, "filter 6"},
                {"toolarge", MANTA_EUNSUPPORTED, "int64"},
                {"nowhere", MANTA_ENOENT, "no dataset"}};
    static const char *const files[] = {"old.h5", "new.h5"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        golden g = load(files[k]);
        int64_t live = mem_live();
        manta_saved *s = mem_new(sizeof *s);
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
            char *path = mem_printf("elsewhere/%s", want[i].at);
            assert_int_equal(h5_read(g.f, path, s, path), want[i].code);
            assert_error_says(want[i].word);
            assert_error_says("/elsewhere/");
            assert_error_says(files[k]);
            mem_free(path);
        }
        assert_int_equal(h5_read(g.f, "elsewhere/hard", s, "hard"), MANTA_OK);
        manta_saved_free(s);
        (void)live;
        unload(&g);
    }
}

/* ---- damage ---- */

/* Reads all that there is to read; nothing of it may matter. The first failure, if any. */
static manta_status read_anything(h5_file *f, const char *group, int depth)
{
    static const char *const texts[] = {"model_config", "many",   "fixed",     "list",
                                        "long",         "text-1", "fixed-long"};
    h5_names names = {0};
    manta_status st = h5_list(f, group, &names), first;

    first = st;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !st; i++) {
        h5_names t = {0};
        bool found;
        manta_status sub = h5_texts(f, group, texts[i], &t, &found);
        h5_names_release(&t);
        if (sub && !first) first = sub;
    }
    for (size_t i = 0; i < names.n && depth < 4; i++) {
        char *path = mem_printf("%s%s%s", group, *group ? "/" : "", names.at[i]);
        manta_saved *s = mem_new(sizeof *s);
        h5_kind kind = H5_NOTHING;
        manta_status sub = h5_find(f, path, &kind);
        if (!sub && kind == H5_GROUP) sub = read_anything(f, path, depth + 1);
        if (!sub && kind == H5_DATASET) sub = h5_read(f, path, s, "x");
        if (sub && !first) first = sub;
        if (sub) assert_true(manta_error_text()[0]);
        manta_saved_free(s);
        mem_free(path);
    }
    h5_names_release(&names);
    return first;
}

/* The small ones hold each structure once; the others larger trees and all types. */
static const char *const damaged[] = {"old-front.h5",  "new-v18.h5",     "small-old.h5", "small-array.h5",
                                      "small-tree.h5", "small-dense.h5", "new.h5",       "new-index.h5",
                                      "new-dense.h5",  "old.h5"};
enum { OLDEST = 0, SMALL = 12000, LARGEST = sizeof damaged / sizeof *damaged - 1 };

/* A copy of exactly n bytes, so that the sanitizer sees any step beyond them. */
static manta_status read_bytes(const uint8_t *data, size_t n)
{
    uint8_t *copy = mem_try_raw(n ? n : 1);
    h5_file *f = NULL;
    manta_status st;

    memcpy(copy, data, n);
    st = h5_open("damaged", copy, n, &f);
    if (!st) st = read_anything(f, "", 0);
    h5_close(f);
    mem_try_free(copy);
    return st;
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof damaged / sizeof *damaged; k++) {
        golden g = load(damaged[k]);
        int64_t live = mem_live();
        /* whole, the small ones have nothing to refuse */
        if (!strncmp(damaged[k], "small", 5)) assert_int_equal(read_bytes(g.data, g.size), MANTA_OK);
        for (size_t n = 0; n < g.size; n += g.size < SMALL ? 1 : 101) {
            assert_int_equal(read_bytes(g.data, n), MANTA_ECORRUPT);
        }
        assert_int_equal(read_bytes(g.data, g.size - 1), MANTA_ECORRUPT);
        assert_int_equal(mem_live(), live);
        unload(&g);
    }
}

/* The superblock says how long the file is; without it the cut is only found where it matters. */
static void a_file_cut_in_secret_never_crashes(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        golden g = load(damaged[k ? LARGEST : OLDEST]);
        int64_t live = mem_live();
        size_t base = k ? 0 : 512, step = k ? 521 : 1;
        memset(g.data + base + 40, 0, 8);
        for (size_t n = base + 96; n < g.size; n += step) {
            manta_status st = read_bytes(g.data, n);
            assert_true(st != MANTA_EINTERNAL);
        }
        assert_int_equal(mem_live(), live);
        unload(&g);
    }
}

/* By a bit, by all, and to 255: what is read may be wrong, but reading ends. Of a 0, most of which only fill
 * up, one of the first two. */
static void flip(golden *g, size_t i)
{
    uint8_t was = g->data[i];
    const uint8_t to[3] = {(uint8_t)(was ^ 1 << i % 8), (uint8_t)~was, 0xff};
    int from = was ? 0 : (int)(i / 8 % 2), n = was ? 3 : 1;

    for (int j = from; j < from + n; j++) {
        g->data[i] = to[j];
        assert_true(read_bytes(g->data, g->size) != MANTA_EINTERNAL);
    }
    g->data[i] = was;
}

/* Every byte of the small files; of the large ones every few, and the heads of what only they have. */
static void a_flipped_byte_never_crashes(void **state)
{
    static const char *const rare[] = {"EASB", "BTIN", "FHIB", "OCHK"};
    int seen = 0;

    (void)state;
    for (size_t k = 0; k < sizeof damaged / sizeof *damaged; k++) {
        golden g = load(damaged[k]);
        int64_t live = mem_live();
        for (size_t i = 0; i < g.size; i += g.size < SMALL ? 1 : 401) flip(&g, i);
        for (int r = 0; r < 4 && g.size >= SMALL; r++) {
            const uint8_t *p = memmem(g.data, g.size, rare[r], 4);
            if (!p) continue;
            seen |= 1 << r;
            size_t at = (size_t)(p - g.data);
            for (size_t i = at; i < at + 96 && i < g.size; i++) flip(&g, i);
        }
        assert_int_equal(mem_live(), live);
        unload(&g);
    }
    assert_int_equal(seen, 15);
}

/* Metadata of the newer form have checksums: no flipped bit in them goes unseen. */
static void a_flipped_bit_in_metadata_is_seen(void **state)
{
    golden g = load("new-v18.h5");
    const uint8_t *p;

    (void)state;
    for (const char *const *magic = (const char *const[]){"\211HDF", "OHDR", NULL}; *magic; magic++) {
        p = memmem(g.data, g.size, *magic, 4);
        assert_non_null(p);
        for (size_t i = 4; i < 40; i++) {
            size_t at = (size_t)(p - g.data) + i;
            g.data[at] ^= 4;
            assert_int_not_equal(read_bytes(g.data, g.size), MANTA_OK);
            g.data[at] ^= 4;
        }
    }
    unload(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_of_any_size_reads_back),
        cmocka_unit_test(shapes_and_types_read_back),
        cmocka_unit_test(a_failing_sink_ends_the_writing),
        cmocka_unit_test(attributes_read_back),
        cmocka_unit_test(every_way_to_store_a_dataset_is_read),
        cmocka_unit_test(types_become_ours),
        cmocka_unit_test(texts_of_all_kinds_are_read),
        cmocka_unit_test(dense_groups_are_read),
        cmocka_unit_test(what_lies_elsewhere_or_nowhere_is_refused),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_file_cut_in_secret_never_crashes),
        cmocka_unit_test(a_flipped_byte_never_crashes),
        cmocka_unit_test(a_flipped_bit_in_metadata_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
