/* bundle_test.c - TensorFlow checkpoints: the documented bytes, files that
 * TensorFlow wrote, writing and reading back, and every kind of damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/file.h>
#include <manta/layer.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "format/codec/input.h"
#include "format/codec/proto.h"
#include "format/codec/record.h"
#include "format/tensorflow/bundle_model.h"
#include "ok.h"
#include "os/fault.h"
#include "os/file.h"
#include "scratch.h"

#define GOLDEN MANTA_SOURCE_DIR "/tests/golden/files/tf_checkpoint/"

static const uint8_t one_tensor[121] = {
    0x00, 0x00, 0x06,         0x08, 0x01, 0x1a, 0x02, 0x08, 0x01, 0x00, 0x01, 0x0f, 0x77, 0x08, 0x01,
    0x12, 0x04, 0x12,         0x02, 0x08, 0x02, 0x28, 0x08, 0x35, 0x59, 0x3c, 0xe5, 0x35, 0x00, 0x00,
    0x00, 0x00, 0x01,         0x00, 0x00, 0x00, 0x00, 0x09, 0x21, 0xad, 0xc3, 0x00, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x00,         0x00, 0x00, 0xc0, 0xf2, 0xa1, 0xb0, 0x00, 0x01, 0x02, 0x77, 0x00, 0x24,
    0x00, 0x00, 0x00,         0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x94, 0x60, 0xb2, 0xcd, 0x29, 0x08,
    0x36, 0x0e, [113] = 0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb};

static manta_status read_all(const char *path, const manta_read_options *o, manta_saved *s)
{
    static const manta_read_options none;

    return model_tf.read(path, o ? o : &none, s);
}

static manta_saved *saved_new(void)
{
    return mem_new(sizeof(manta_saved));
}

/* ---- bytes ------------------------------------------------------------------------------ */

static void the_smallest_bundle_is_read(void **state)
{
    (void)state;
    bundle b = {0};
    float w[2] = {0};
    static const float values[] = {1, 2};

    const char *prefix = scratch_path("vector");
    scratch_file("vector.index", one_tensor, sizeof one_tensor);
    scratch_file("vector.data-00000-of-00001", values, sizeof values);
    assert_int_equal(bundle_open(prefix, &b), MANTA_OK);
    assert_int_equal(b.entries.n, 1);
    const bundle_entry *e = bundle_find(&b, "w");
    assert_non_null(e);
    assert_true(e->dtype == BUNDLE_F32 && e->ndim == 1 && e->shape[0] == 2 && e->size == 8 && e->offset == 0);
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){2}, w);
    assert_int_equal(bundle_read(&b, e, &a), MANTA_OK);
    assert_memory_equal(w, values, sizeof w);
    assert_null(bundle_find(&b, "v"));
    bundle_release(&b);

    /* and written */
    bundle_table t = {0};
    static const uint8_t header[] = {8, 1, 0x1a, 2, 8, 1};
    bundle_table_add(&t, "", 0, header, sizeof header);
    bundle_table_add(&t, "w", 1, one_tensor + 13, 15);
    bundle_table_finish(&t);
    assert_int_equal(t.file.n, sizeof one_tensor);
    assert_memory_equal(t.file.at, one_tensor, sizeof one_tensor);
    bundle_table_release(&t);
}

typedef struct keys {
    int n;
    char last[32];
} keys;

static manta_status count_key(void *ctx, const uint8_t *key, size_t key_n, const uint8_t *value, size_t n)
{
    keys *k = ctx;
    char text[32], expected[32];

    snprintf(text, sizeof text, "%.*s", (int)key_n, (const char *)key);
    snprintf(expected, sizeof expected, "layer/%05d/kernel", k->n);
    assert_string_equal(text, expected);
    assert_int_equal(n, sizeof(int));
    assert_memory_equal(value, &k->n, n);
    k->n++;
    return MANTA_OK;
}

/* Many blocks, many restarts in each. */
static void a_table_of_many_blocks_is_read_back(void **state)
{
    (void)state;
    bundle_table t = {.block_size = 1000};
    keys k = {0};

    for (int i = 0; i < 2000; i++) {
        char key[32];
        snprintf(key, sizeof key, "layer/%05d/kernel", i);
        bundle_table_add(&t, key, strlen(key), &i, sizeof i);
    }
    bundle_table_finish(&t);
    assert_int_equal(bundle_table_read("t", (const uint8_t *)t.file.at, t.file.n, count_key, &k), MANTA_OK);
    assert_int_equal(k.n, 2000);
    bundle_table_release(&t);
}

/* ---- what TensorFlow wrote --------------------------------------------------------------- */

static void small_checkpoints_of_tensorflow_are_read(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "small", GOLDEN "names.index"};
    static const char *const names[][2] = {{"m/w", "m/b"}, {"dense/kernel", "dense/bias"}};

    for (int i = 0; i < 2; i++) {
        manta_saved *s = saved_new();
        assert_ok(read_all(files[i], NULL, s));
        assert_int_equal(manta_saved_arrays(s), 2);
        const manta_array *w = manta_saved_find(s, names[i][0]), *b = manta_saved_find(s, names[i][1]);
        assert_non_null(w);
        assert_non_null(b);
        assert_true(w->ndim == 2 && w->shape[0] == 2 && w->shape[1] == 3);
        for (int k = 0; k < 6; k++) assert_true(((const float *)w->data)[k] == (float)k);
        assert_true(((const float *)b->data)[1] == 2);
        manta_saved_free(s);
    }
}

static void checkpoints_of_many_blocks_and_shards_are_read(void **state)
{
    (void)state;
    manta_saved *s = saved_new();

    assert_int_equal(read_all(GOLDEN "multi", NULL, s), MANTA_OK); /* several blocks */
    assert_int_equal(manta_saved_arrays(s), 400);
    assert_true(((const float *)manta_saved_find(s, "layer_0399/kernel")->data)[0] == 1);
    manta_saved_free(s);
    s = saved_new();
    assert_int_equal(read_all(GOLDEN "many.index", NULL, s), MANTA_OK); /* several restarts */
    assert_true(manta_saved_arrays(s) >= 40);
    manta_saved_free(s);
}

/* A model that Keras 3 trained and tf.train.Checkpoint saved: keys lead through
 * the optimizer, so full names decide. The folder's `checkpoint` file says which. */
static void a_checkpoint_of_keras_is_read_by_full_names(void **state)
{
    (void)state;
    manta_model *m = manta_model_new("m");
    manta_saved *s = saved_new();

    manta_value x = manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 3}), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 2}), x);
    manta_output(m, x);
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_ok(read_all(GOLDEN, &(manta_read_options){.like = m}, s));
    const manta_array *k = manta_saved_find(s, "dense/kernel"),
                      *v = manta_saved_find(s, "optimizer/velocity/dense_1/kernel"),
                      *n = manta_saved_find(s, "optimizer/iterations"),
                      *r = manta_saved_find(s, "optimizer/learning_rate");
    assert_true(k && k->shape[0] == 4 && k->shape[1] == 3);
    assert_true(v && v->shape[0] == 3 && v->shape[1] == 2);
    assert_true(n && *(const int64_t *)n->data == 1);
    assert_true(r && r->dtype == MANTA_DTYPE_F64 && *(const double *)r->data == (double)0.001f);
    for (int i = 0; i < manta_saved_arrays(s); i++) {
        assert_true(!strncmp(manta_saved_at(s, i)->name, "dense", 5) ||
                    !strncmp(manta_saved_at(s, i)->name, "optimizer/", 10));
    }
    manta_saved_free(s);
    /* a model that needs more, or another shape */
    s = saved_new();
    assert_int_equal(read_all(GOLDEN "names", &(manta_read_options){.like = m}, s), MANTA_ENOENT);
    assert_error_says("dense_1/kernel");
    manta_saved_free(s);
    manta_model_free(m);
    m = manta_model_new("other");
    x = manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    manta_output(m, manta_call(m, manta_dense(m, (manta_dense_options){.units = 2}), x));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    s = saved_new();
    assert_int_equal(read_all(GOLDEN "names", &(manta_read_options){.like = m}, s), MANTA_EINVAL);
    assert_error_says("(2, 3)");
    manta_saved_free(s);
    manta_model_free(m);
}

/* Its data file is shorter than its index says. */
static void a_data_file_shorter_than_its_index_is_corrupt(void **state)
{
    (void)state;
    manta_saved *s = saved_new();

    assert_int_equal(read_all(GOLDEN "bad", NULL, s), MANTA_ECORRUPT);
    manta_saved_free(s);
}

/* ---- writing ----------------------------------------------------------------------------- */

static float kernel[6] = {0, 1, 2, 3, 4, 5};
static double rate = 0.25;
static int64_t steps = 12;
static uint8_t flags[3] = {1, 0, 1};

static int fill(manta_column *c)
{
    c[0] = (manta_column){"conv2d/kernel", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 3}, kernel)};
    c[1] = (manta_column){"optimizer/momentum/conv2d/kernel", c[0].array};
    c[2] = (manta_column){"optimizer/learning_rate", manta_array_of(MANTA_DTYPE_F64, 0, NULL, &rate)};
    c[3] = (manta_column){"optimizer/iterations", manta_array_of(MANTA_DTYPE_I64, 0, NULL, &steps)};
    c[4] = (manta_column){"odd.name/flags", manta_array_of(MANTA_DTYPE_BOOL, 1, (int64_t[]){3}, flags)};
    c[5] = (manta_column){"empty", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){0}, kernel)};
    /* a transposed view */
    c[6] = (manta_column){"transposed", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){3, 2}, kernel)};
    c[6].array.strides[0] = 1;
    c[6].array.strides[1] = 3;
    return 7;
}

static void assert_filled(const manta_saved *s, int n)
{
    assert_int_equal(manta_saved_arrays(s), n);
    assert_memory_equal(manta_saved_find(s, "conv2d/kernel")->data, kernel, sizeof kernel);
    assert_true(*(const double *)manta_saved_find(s, "optimizer/learning_rate")->data == rate);
    assert_true(*(const int64_t *)manta_saved_find(s, "optimizer/iterations")->data == steps);
    assert_int_equal(manta_saved_find(s, "odd.name/flags")->dtype, MANTA_DTYPE_BOOL);
    assert_memory_equal(manta_saved_find(s, "odd.name/flags")->data, flags, 3);
    assert_int_equal(manta_saved_find(s, "empty")->shape[0], 0);
    static const float t[] = {0, 3, 1, 4, 2, 5};
    assert_memory_equal(manta_saved_find(s, "transposed")->data, t, sizeof t);
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    manta_column c[8];
    manta_contents contents = {.n_arrays = fill(c), .arrays = c};
    void *text = NULL;
    size_t n;

    mkdir(scratch_path("ck"), 0777);
    assert_int_equal(model_tf.write(scratch_path("ck/ckpt-1.index"), &contents), MANTA_OK);
    assert_int_equal(model_tf.write(scratch_path("ck/ckpt-2"), &contents), MANTA_OK);
    assert_int_equal(model_tf.write(scratch_path("ck/ckpt-2"), &contents), MANTA_OK); /* over itself */
    assert_int_equal(file_read(scratch_path("ck/checkpoint"), 1000, &text, &n), MANTA_OK);
    assert_string_equal(text,
                        "model_checkpoint_path: \"ckpt-2\"\n"
                        "all_model_checkpoint_paths: \"ckpt-1\"\nall_model_checkpoint_paths: \"ckpt-2\"\n");
    mem_try_free(text);
    static const char *const paths[] = {"ck", "ck/ckpt-1", "ck/ckpt-2.index"};
    for (int i = 0; i < 3; i++) {
        manta_saved *s = saved_new();
        assert_int_equal(model_tf.probe(scratch_path(paths[i]), NULL, i == 2), MODEL_CONTENTS);
        assert_ok(read_all(scratch_path(paths[i]), NULL, s));
        assert_filled(s, 7);
        manta_saved_free(s);
    }
    bundle b = {0};
    assert_int_equal(bundle_open(scratch_path("ck/ckpt-1"), &b), MANTA_OK);
    assert_int_equal(b.entries.n, 8);
    assert_non_null(bundle_find(&b, BUNDLE_GRAPH_KEY));
    assert_non_null(bundle_find(&b, "odd..name/flags/.ATTRIBUTES/VARIABLE_VALUE"));
    bundle_release(&b);
}

/* A SavedModel's variables. */
static void variables_of_a_saved_model_are_read(void **state)
{
    (void)state;
    manta_column c[8];
    manta_contents contents = {.n_arrays = fill(c), .arrays = c};
    manta_saved *s = saved_new();

    mkdir(scratch_path("sm"), 0777);
    mkdir(scratch_path("sm/variables"), 0777);
    assert_int_equal(model_tf.write(scratch_path("sm/variables/variables"), &contents), MANTA_OK);
    remove(scratch_path("sm/variables/checkpoint"));
    assert_int_equal(model_tf.probe(scratch_path("sm"), NULL, 0), MODEL_CONTENTS);
    assert_int_equal(read_all(scratch_path("sm"), NULL, s), MANTA_OK);
    assert_filled(s, 7);
    manta_saved_free(s);
}

static void bad_names_are_not_written(void **state)
{
    (void)state;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, kernel);
    static const char *const bad[] = {"", "/a", "a/", "a//b", "save_counter"};

    for (int i = 0; i < 5; i++) {
        manta_column c = {bad[i], a};
        assert_int_equal(bundle_write(scratch_path("refused"), 1, &c), MANTA_EINVAL);
    }
    manta_column twice[2] = {{"a", a}, {"a", a}};
    assert_int_equal(bundle_write(scratch_path("refused"), 2, twice), MANTA_EINVAL);
    assert_int_not_equal(access(scratch_path("refused.index"), F_OK), 0);
}

/* ---- damage ------------------------------------------------------------------------------ */

static void a_cut_or_flipped_index_is_corrupt(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "ckpt-1.index", GOLDEN "small.index"};

    for (int k = 0; k < 2; k++) {
        input in = {0};
        bundle b = {0};
        assert_int_equal(input_read(files[k], &in), MANTA_OK);
        for (size_t cut = 0; cut < in.size; cut++) {
            assert_int_equal(bundle_parse("cut", in.data, cut, &b), MANTA_ECORRUPT);
        }
        for (size_t i = 0; i < in.size; i++) {
            int64_t live = mem_live();
            for (int bit = 0; bit < 8; bit++) {
                in.data[i] ^= (uint8_t)(1 << bit);
                manta_status st = bundle_parse("flip", in.data, in.size, &b);
                /* the metaindex block, its handle and the padding are not used */
                if (!st) bundle_release(&b);
                if (!st && i < in.size - 48 - 60) fail_msg("bit %d of byte %zu went unnoticed", bit, i);
                in.data[i] ^= (uint8_t)(1 << bit);
            }
            assert_int_equal(mem_live(), live);
        }
        input_release(&in);
    }
}

static void flipped_data_is_corrupt(void **state)
{
    (void)state;
    input in = {0}, index = {0};

    assert_int_equal(input_read(GOLDEN "small.data-00000-of-00001", &in), MANTA_OK);
    assert_int_equal(input_read(GOLDEN "small.index", &index), MANTA_OK);
    scratch_file("f.index", index.data, index.size);
    for (size_t i = 0; i < in.size; i++) {
        manta_saved *s = saved_new();
        in.data[i] ^= 0x10;
        scratch_file("f.data-00000-of-00001", in.data, in.size);
        assert_int_equal(read_all(scratch_path("f"), NULL, s), MANTA_ECORRUPT);
        in.data[i] ^= 0x10;
        manta_saved_free(s);
    }
    input_release(&in);
    input_release(&index);
}

/* An index whose entry lies about its size, with all sums right. */
static void entries_that_lie_are_refused(void **state)
{
    (void)state;
    enum { HUGE_SIZE, BAD_SHARD, NEGATIVE, WRONG_SHAPE, OVERFLOW, SLICED, STRANGE_TYPE, CASES };
    static const manta_status expected[CASES] = {MANTA_ECORRUPT,    MANTA_ECORRUPT, MANTA_ECORRUPT,
                                                 MANTA_ECORRUPT,    MANTA_ECORRUPT, MANTA_EUNSUPPORTED,
                                                 MANTA_EUNSUPPORTED};

    for (int c = 0; c < CASES; c++) {
        bundle_table t = {0};
        buf b = {0};
        size_t s, d;
        static const uint8_t header[] = {8, 1, 0x1a, 2, 8, 1};
        bundle_table_add(&t, "", 0, header, sizeof header);
        proto_add_int(&b, 1, c == STRANGE_TYPE ? 12 : BUNDLE_F32);
        s = proto_begin(&b, 2);
        for (int i = 0; i < (c == OVERFLOW ? 3 : 1); i++) {
            d = proto_begin(&b, 2);
            proto_add_int(&b, 1, c == HUGE_SIZE ? INT64_C(1) << 40 : c == OVERFLOW ? INT64_C(1) << 31 : 2);
            proto_end(&b, d);
        }
        proto_end(&b, s);
        if (c == BAD_SHARD) proto_add_int(&b, 3, 1);
        if (c == NEGATIVE) proto_add_int(&b, 4, -8);
        proto_add_int(&b, 5,
                      c == HUGE_SIZE     ? INT64_C(4) << 40
                      : c == WRONG_SHAPE ? 12
                      : c == OVERFLOW    ? 0
                                         : 8);
        proto_add_fixed32(&b, 6, record_sum(kernel, 8));
        if (c == SLICED) proto_add_text(&b, 7, "");
        bundle_table_add(&t, "w", 1, b.at, b.n);
        bundle_table_finish(&t);
        scratch_file("h.index", t.file.at, t.file.n);
        scratch_file("h.data-00000-of-00001", kernel, sizeof kernel);
        manta_saved *saved = saved_new();
        assert_int_equal(read_all(scratch_path("h"), NULL, saved), expected[c]);
        manta_saved_free(saved);
        bundle_table_release(&t);
        buf_release(&b);
    }
}

static void the_state_file_names_the_checkpoint(void **state)
{
    (void)state;
    char *prefix = NULL;

    mkdir(scratch_path("st"), 0777);
    assert_int_equal(bundle_locate(scratch_path("st"), &prefix), MANTA_ENOENT);
    scratch_file("st/checkpoint", "all_model_checkpoint_paths: \"a\"\n", 32);
    assert_int_equal(bundle_locate(scratch_path("st"), &prefix), MANTA_ECORRUPT);
    static const char text[] = "model_checkpoint_path: \"/abs/a\\\"b\"\r\n";
    scratch_file("st/checkpoint", text, sizeof text - 1);
    assert_int_equal(bundle_locate(scratch_path("st"), &prefix), MANTA_OK);
    assert_string_equal(prefix, "/abs/a\"b");
    mem_free(prefix);
}

/* ---- failing systems ----------------------------------------------------------------------- */

/* What step the checkpoint at prefix says it is of. */
static int64_t read_steps(const char *prefix)
{
    manta_saved *s = saved_new();

    assert_int_equal(read_all(prefix, NULL, s), MANTA_OK);
    int64_t v = *(const int64_t *)manta_saved_find(s, "optimizer/iterations")->data;
    manta_saved_free(s);
    return v;
}

static size_t count_files(const char *folder)
{
    file_names names = {0};

    assert_int_equal(file_list(folder, &names), MANTA_OK);
    size_t n = names.n;
    file_names_release(&names);
    return n;
}

/* A full disk at any call: the old checkpoint can be read then, or the new one. */
static void a_full_disk_leaves_the_old_or_the_new_checkpoint(void **state)
{
    (void)state;
    manta_column c[8];
    manta_contents contents = {.n_arrays = fill(c), .arrays = c};

    mkdir(scratch_path("full"), 0777);
    for (int64_t n = 1;; n++) {
        const char *prefix = scratch_path("full/c");
        steps = 3;
        assert_int_equal(model_tf.write(prefix, &contents), MANTA_OK);
        assert_int_equal(count_files(scratch_path("full")), 3);
        steps = 4;
        int64_t live = mem_live();
        fault_begin((fault_plan){.at = n, .err = ENOSPC, .sticky = true, .spare_unlink = true});
        manta_status st = model_tf.write(prefix, &contents);
        bool hit = fault_end() > 0;
        assert_int_equal(mem_live(), live);
        int64_t found = read_steps(prefix);
        assert_true(found == 4 || (st && found == 3));
        if (found == 3) assert_int_equal(count_files(scratch_path("full")), 3);
        if (!hit) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
    }
    steps = 12;
    assert_int_equal(count_files(scratch_path("full")), 3); /* no temporary files are left */
    assert_int_equal(access(scratch_path("full/c.data-00000-of-00001"), F_OK), 0);
}

static int no_link(const char *from, const char *to)
{
    (void)from;
    (void)to;
    errno = EPERM;
    return -1;
}

/* A file system on which a file has one name only: the replaced checkpoint lies in shard 0 of 2, then of 1. */
static void a_file_system_without_links_keeps_the_replaced_checkpoint(void **state)
{
    (void)state;
    manta_column c[8];
    manta_contents contents = {.n_arrays = fill(c), .arrays = c};
    os_sys table = os_real;

    mkdir(scratch_path("nolink"), 0777);
    table.link = no_link;
    os_use(&table);
    for (int i = 1; i <= 5; i++) {
        const char *prefix = scratch_path("nolink/c");
        steps = i;
        assert_int_equal(model_tf.write(prefix, &contents), MANTA_OK);
        assert_int_equal(read_steps(prefix), i);
        assert_int_equal(count_files(scratch_path("nolink")), 3);
        assert_int_equal(access(scratch_path("nolink/c.data-00000-of-00002"), F_OK), i % 2 ? -1 : 0);
    }
    os_use(NULL);
    steps = 12;
}

static manta_status read_small(void *ctx)
{
    manta_saved *s = saved_new();

    (void)ctx;
    manta_status st = read_all(GOLDEN "small", NULL, s);
    manta_saved_free(s);
    return st;
}

static void a_failing_system_or_allocation_is_reported(void **state)
{
    (void)state;
    for (int64_t n = 1;; n++) {
        int64_t live = mem_live();
        manta_saved *s = saved_new();
        fault_begin((fault_plan){.at = n, .err = EIO});
        manta_status st = read_all(GOLDEN "small", NULL, s);
        bool hit = fault_end() > 0;
        manta_saved_free(s);
        assert_int_equal(mem_live(), live);
        if (!hit) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
    }
    alloc_fail_each(read_small, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_bundle_is_read),
        cmocka_unit_test(a_table_of_many_blocks_is_read_back),
        cmocka_unit_test(small_checkpoints_of_tensorflow_are_read),
        cmocka_unit_test(checkpoints_of_many_blocks_and_shards_are_read),
        cmocka_unit_test(a_checkpoint_of_keras_is_read_by_full_names),
        cmocka_unit_test(a_data_file_shorter_than_its_index_is_corrupt),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(variables_of_a_saved_model_are_read),
        cmocka_unit_test(bad_names_are_not_written),
        cmocka_unit_test(a_cut_or_flipped_index_is_corrupt),
        cmocka_unit_test(flipped_data_is_corrupt),
        cmocka_unit_test(entries_that_lie_are_refused),
        cmocka_unit_test(the_state_file_names_the_checkpoint),
        cmocka_unit_test(a_full_disk_leaves_the_old_or_the_new_checkpoint),
        cmocka_unit_test(a_file_system_without_links_keeps_the_replaced_checkpoint),
        cmocka_unit_test(a_failing_system_or_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
