/* sizes_test.c - one below, at, one above and ten times every size of format/codec/sizes.h: what is read is
 * what was written, wherever a block ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <manta/data_file.h>

#include "base/mem.h"
#include "format/codec/elements.h"
#include "format/codec/sizes.h"
#include "format/tensorflow/bundle.h"
#include "format/tfrecord/tfrecord.h"
#include "ok.h"
#include "recorded.h"
#include "scratch.h"
#include "tar_maker.h"

/* Calls `check` with every size beside one. */
static void around(size_t size, void (*check)(size_t size))
{
    check(size - 1);
    check(size);
    check(size + 1);
    check(10 * size);
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 31 + i / 251);
}

static uint8_t *bytes_of(size_t n)
{
    uint8_t *b = malloc(n + 1);

    assert_non_null(b);
    for (size_t i = 0; i < n; i++) b[i] = byte_at(i);
    return b;
}

/* ---- elements ---- */

static manta_status gather(void *to, const void *data, size_t n)
{
    buf_add(to, data, n);
    return MANTA_OK;
}

/* Every second byte of an array. */
static void check_elements(size_t n)
{
    uint8_t *b = bytes_of(2 * n);
    manta_array a = manta_array_of(MANTA_DTYPE_U8, 1, (int64_t[]){(int64_t)n}, b);
    buf out = {0};

    a.strides[0] = 2;
    assert_ok(elements_each(&a, gather, &out));
    assert_int_equal(out.n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal((uint8_t)out.at[i], b[2 * i]);
    buf_release(&out);
    free(b);
}

static void elements_beside_a_chunk(void **state)
{
    (void)state;
    around(ELEMENTS_CHUNK, check_elements);
}

/* ---- TFRecord ---- */

static void check_record(tfrecord_reader *r, int64_t i, size_t n)
{
    const uint8_t *data;
    size_t got;

    assert_ok(tfrecord_read(r, i, &data, &got));
    assert_int_equal(got, n + (size_t)i % 3);
    for (size_t k = 0; k < got; k++) {
        if (data[k] != byte_at(k + (size_t)i)) fail_msg("byte %zu of record %d of %zu", k, (int)i, n);
    }
}

/* Records of about n bytes, read on and back. */
static void check_records(size_t n)
{
    char *path = mem_strdup(scratch_path("r.tfrecord"));
    uint8_t *b = bytes_of(n + 10);
    tfrecord_writer *w;
    tfrecord_reader *r;
    tfrecord *t;

    assert_ok(tfrecord_writer_open(path, TFRECORD_PLAIN, &w));
    for (size_t i = 0; i < 6; i++) assert_ok(tfrecord_writer_add(w, b + i, n + i % 3));
    assert_ok(tfrecord_writer_commit(w));
    tfrecord_writer_free(w);
    assert_ok(tfrecord_open(1, &path, &t));
    assert_int_equal(tfrecord_count(t), 6);
    r = tfrecord_reader_new(t);
    for (int64_t i = 0; i < 6; i++) check_record(r, i, n);
    for (int64_t i = 5; i >= 0; i--) check_record(r, i, n);
    tfrecord_reader_free(r);
    tfrecord_free(t);
    mem_free(path);
    free(b);
}

static void records_beside_each_size(void **state)
{
    (void)state;
    around(TFRECORD_SPARSE, check_records);
    around(TFRECORD_SCAN, check_records);
    around(TFRECORD_WINDOW, check_records);
    around(TFRECORD_SPARSE - 16, check_records); /* with head and foot */
    around(TFRECORD_SCAN - 16, check_records);
    around(TFRECORD_WINDOW - 16, check_records);
}

/* A file for each record, twice through: some are opened again. */
static void check_files(size_t n)
{
    char **paths = malloc(n * sizeof *paths);
    tfrecord_reader *r;
    tfrecord *t;

    assert_non_null(paths);
    for (size_t i = 0; i < n; i++) {
        tfrecord_writer *w;
        uint32_t number = (uint32_t)i;
        char name[32];
        snprintf(name, sizeof name, "f%zu.tfrecord", i);
        paths[i] = mem_strdup(scratch_path(name));
        assert_ok(tfrecord_writer_open(paths[i], TFRECORD_PLAIN, &w));
        assert_ok(tfrecord_writer_add(w, &number, sizeof number));
        assert_ok(tfrecord_writer_commit(w));
        tfrecord_writer_free(w);
    }
    assert_ok(tfrecord_open(n, paths, &t));
    r = tfrecord_reader_new(t);
    for (size_t i = 0; i < 2 * n; i++) {
        const uint8_t *data;
        uint32_t number;
        size_t got;
        assert_ok(tfrecord_read(r, (int64_t)(i % n), &data, &got));
        memcpy(&number, data, sizeof number);
        assert_int_equal(number, i % n);
    }
    tfrecord_reader_free(r);
    tfrecord_free(t);
    for (size_t i = 0; i < n; i++) mem_free(paths[i]);
    free(paths);
}

static void files_beside_those_that_are_kept_open(void **state)
{
    (void)state;
    around(TFRECORD_OPEN_FILES, check_files);
}

/* ---- datasets ---- */

/* Opens what a text names, and all of it as one batch. */
static manta_loader *open_whole(const char *spec, manta_batch *b)
{
    manta_open_options raw = {.raw = true};
    manta_dataset *d;
    manta_loader *l;

    assert_ok(manta_dataset_open(spec, &raw, &d));
    l = whole_batch(d, b);
    manta_dataset_unref(d);
    return l;
}

static void check_shards(size_t n)
{
    static tar_maker m;
    char spec[256], name[32], text[32];
    manta_batch b;

    for (size_t i = 0; i < n; i++) {
        m.n = 0;
        snprintf(text, sizeof text, "%zu", i);
        snprintf(name, sizeof name, "s-%06zu.tar", i);
        tar_maker_text(&m, "a.cls", text);
        tar_maker_end(&m);
        scratch_file(name, m.bytes, m.n);
    }
    snprintf(spec, sizeof spec, "%s:cls", scratch_path("s-*.tar"));
    manta_loader *l = open_whole(spec, &b);
    const int64_t *x = manta_batch_find(&b, "x")->data;
    assert_int_equal(b.count, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(x[i], i);
    manta_loader_close(l);
}

static void shards_beside_those_that_are_kept_open(void **state)
{
    (void)state;
    around(WEBDATASET_OPEN_SHARDS, check_shards);
}

static void check_idx(size_t n)
{
    uint8_t *file = malloc(n + 8);
    manta_batch b;

    assert_non_null(file);
    memcpy(file, "\0\0\x08\x01", 4);
    for (int i = 0; i < 4; i++) file[4 + i] = (uint8_t)(n >> (24 - 8 * i));
    for (size_t i = 0; i < n; i++) file[8 + i] = byte_at(i);
    manta_loader *l = open_whole(scratch_file("x-idx1-ubyte", file, n + 8), &b);
    assert_int_equal(b.count, n);
    assert_memory_equal(manta_batch_find(&b, "x")->data, file + 8, n);
    manta_loader_close(l);
    free(file);
}

static void files_beside_those_that_are_unpacked_behind(void **state)
{
    (void)state;
    around(FILES_BEHIND, check_idx);
}

/* ---- tables ---- */

/* Adds a line of n bytes: numbers of 17 digits, the last of them with as many as are left. */
static void add_line(buf *b, size_t n, int64_t *fields)
{
    *fields = 0;
    for (size_t left = n; left > 0; ++*fields) {
        size_t now = left <= 36 ? left - 1 : 17;
        buf_printf(b, "%0*d", (int)now, (int)(*fields % 9 + 1));
        left -= now + 1;
        buf_printf(b, left ? "," : "\n");
    }
}

/* Two lines of n bytes, their newlines among them. */
static void check_line(size_t n)
{
    buf b = {0};
    int64_t fields;
    manta_batch batch;

    add_line(&b, n, &fields);
    add_line(&b, n, &fields);
    manta_loader *l = open_whole(scratch_file("wide.csv", b.at, b.n), &batch);
    const manta_array *x = manta_batch_find(&batch, "x");
    assert_int_equal(batch.count, 2);
    assert_int_equal(x->shape[1], fields);
    for (int64_t i = 0; i < 2 * fields; i++) {
        if (((const float *)x->data)[i] != (float)(i % fields % 9 + 1)) fail_msg("field %lld", (long long)i);
    }
    manta_loader_close(l);
    buf_release(&b);
}

static void lines_beside_what_is_looked_at(void **state)
{
    (void)state;
    around(CSV_HEAD, check_line);
}

/* Rows "k,7" of a file of n bytes in all; the last row's second number has the digits that are left. */
static void write_rows(size_t n, const char *head, char quote, int64_t *rows)
{
    buf b = {0};

    buf_printf(&b, "%s", head);
    for (*rows = 0; b.n + 40 < n; ++*rows) {
        if (quote)
            buf_printf(&b, "%lld,\"7\"\n", (long long)*rows);
        else
            buf_printf(&b, "%lld,7\n", (long long)*rows);
    }
    buf_printf(&b, "%lld,0.", (long long)(*rows)++);
    while (b.n + 1 < n) buf_printf(&b, "5");
    buf_printf(&b, "\n");
    assert_int_equal(b.n, n);
    scratch_file("rows.csv", b.at, b.n);
    buf_release(&b);
}

static void check_rows(const char *more, int64_t rows)
{
    char spec[256];
    manta_batch b;

    snprintf(spec, sizeof spec, "%s%s", scratch_path("rows.csv"), more);
    manta_loader *l = open_whole(spec, &b);
    const float *x = manta_batch_find(&b, "x")->data;
    assert_int_equal(b.count, rows);
    for (int64_t i = 0; i < rows; i++) {
        if (x[2 * i] != (float)i ||
            (i < rows - 1 ? x[2 * i + 1] != 7 : x[2 * i + 1] < 0.5f || x[2 * i + 1] > 0.6f))
            fail_msg("row %lld of %lld", (long long)i, (long long)rows);
    }
    manta_loader_close(l);
}

static void check_plain(size_t n)
{
    int64_t rows;

    write_rows(n, "", 0, &rows);
    check_rows("", rows);
}

static void check_quoted(size_t n)
{
    int64_t rows;

    write_rows(n, "a,b\n", '"', &rows);
    check_rows(":x=a+b", rows);
}

static void files_beside_a_block(void **state)
{
    (void)state;
    around(CSV_FAST_BLOCK, check_plain);
    around(CSV_BLOCK, check_quoted);
}

/* ---- TensorFlow's index ---- */

typedef struct expected {
    size_t n, size; /* entries, and bytes of a value */
} expected;

static manta_status take_entry(void *ctx, const uint8_t *key, size_t key_n, const uint8_t *value, size_t n)
{
    expected *e = ctx;
    char want[32];

    snprintf(want, sizeof want, "%06zu", e->n++);
    if (key_n != 6 || memcmp(key, want, 6) || n != e->size) return MANTA_ECORRUPT;
    for (size_t i = 0; i < n; i++) {
        if (value[i] != byte_at(i)) return MANTA_ECORRUPT;
    }
    return MANTA_OK;
}

static void check_table(size_t entries, size_t size)
{
    expected e = {.size = size};
    bundle_table t = {0};
    uint8_t *b = bytes_of(size);

    for (size_t i = 0; i < entries; i++) {
        char key[32];
        snprintf(key, sizeof key, "%06zu", i);
        bundle_table_add(&t, key, 6, b, size);
    }
    bundle_table_finish(&t);
    assert_ok(bundle_table_read("t.index", (const uint8_t *)t.file.at, t.file.n, take_entry, &e));
    assert_int_equal(e.n, entries);
    bundle_table_release(&t);
    free(b);
}

static void check_block(size_t n)
{
    check_table(3, n);
    if (n > 20) check_table(3, n - 11); /* with what stands before a value */
}

static void check_entries(size_t n)
{
    check_table(n, 5);
}

static void tables_beside_a_block_and_a_restart(void **state)
{
    (void)state;
    around(BUNDLE_BLOCK, check_block);
    around(BUNDLE_INTERVAL, check_entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_beside_a_chunk),
        cmocka_unit_test(records_beside_each_size),
        cmocka_unit_test(files_beside_those_that_are_kept_open),
        cmocka_unit_test(shards_beside_those_that_are_kept_open),
        cmocka_unit_test(files_beside_those_that_are_unpacked_behind),
        cmocka_unit_test(lines_beside_what_is_looked_at),
        cmocka_unit_test(files_beside_a_block),
        cmocka_unit_test(tables_beside_a_block_and_a_restart),
    };

    return cmocka_run_group_tests(tests, scratch_setup_quick, scratch_teardown);
}
