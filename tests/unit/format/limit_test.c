/* limit_test.c - what packed bytes may become, and that every reader keeps to it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>
#include <zlib.h>

#include "base/mem.h"
#include "format/array/idx.h"
#include "format/codec/input.h"
#include "format/codec/limit.h"
#include "format/codec/seek.h"
#include "format/codec/zip.h"
#include "format/tfrecord/tfrecord.h"
#include "format/webdataset/tar.h"
#include "ok.h"
#include "scratch.h"

#define MIB   ((uint64_t)1 << 20)
#define ZEROS ((size_t)2 << 20)

static int unset(void **state)
{
    (void)state;
    return unsetenv("MANTA_UNPACK_MAX");
}

static void by_size_and_by_ratio(void **state)
{
    (void)state;
    assert_int_equal(limit_unpacked("f", 1, 256 * MIB), MANTA_OK); /* whatever the ratio */
    assert_int_equal(limit_unpacked("f", 1, 256 * MIB + 1), MANTA_ENOMEM);
    assert_error_says("f: 1 packed bytes would become at least 268435457, expected at most 268435456");
    assert_error_says("MANTA_UNPACK_MAX=SIZE");
    assert_int_equal(limit_unpacked("f", 3 * MIB, 300 * MIB), MANTA_OK);
    assert_int_equal(limit_unpacked("f", 3 * MIB, 300 * MIB + 1), MANTA_ENOMEM);
    assert_int_equal(limit_unpacked("f", (uint64_t)1 << 62, UINT64_MAX), MANTA_ENOMEM);
    assert_error_says("this machine has");
}

static void as_the_environment_says(void **state)
{
    static const struct {
        const char *text;
        uint64_t most;
    } rows[] = {{"1000", 1000}, {"3k", 3 << 10}, {"64M", 64 * MIB}, {"2G", 2048 * MIB}, {"1T", MIB << 20}};
    static const char *const wrong[] = {"",          "x",   "-1", "1K", "1kk", "1 k", "99999999999999999999",
                                        "99999999G", "0x10"};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setenv("MANTA_UNPACK_MAX", rows[i].text, 1);
        assert_int_equal(limit_most(1), rows[i].most);
        assert_int_equal(limit_unpacked("f", 1, rows[i].most), MANTA_OK);
        assert_int_equal(limit_unpacked("f", rows[i].most, rows[i].most + 1), MANTA_ENOMEM);
        assert_error_says("expected at most MANTA_UNPACK_MAX, which is ");
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { /* as if it were not set */
        setenv("MANTA_UNPACK_MAX", wrong[i], 1);
        assert_int_equal(limit_most(1), 256 * MIB);
    }
}

/* ---- every reader ---- */

/* Zeros, packed: 31 gzip, 15 zlib, -15 bare deflate. */
static size_t pack_zeros(int bits, uint8_t *out, size_t room)
{
    uint8_t *zeros = mem_new(ZEROS);
    z_stream z = {.next_in = zeros, .avail_in = ZEROS, .next_out = out, .avail_out = (uInt)room};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    mem_free(zeros);
    return room - z.avail_out;
}

static void put(uint8_t **at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) *(*at)++ = (uint8_t)(v >> 8 * i);
}

/* An archive of one deflated member that is said to have `size` bytes; how long it is. */
static size_t make_zip(const uint8_t *packed, size_t n, uint64_t size, uint8_t *out)
{
    uint8_t *at = out;

    for (int directory = 0; directory < 2; directory++) {
        put(&at, directory ? 0x02014b50 : 0x04034b50, 4);
        if (directory) put(&at, 20, 2);
        put(&at, 20, 2);
        put(&at, 0, 2);
        put(&at, 8, 2);
        put(&at, 0, 8); /* time, sum */
        put(&at, n, 4);
        put(&at, size, 4);
        put(&at, 1, 2);
        put(&at, 0, 2);
        if (directory) put(&at, 0, 8); /* no comment, one volume, no attributes, ... */
        if (directory) put(&at, 0, 6); /* ... at the beginning */
        *at++ = 'x';
        if (!directory) {
            memcpy(at, packed, n);
            at += n;
        }
    }
    size_t length = 47, begin = (size_t)(at - out) - length;
    put(&at, 0x06054b50, 4);
    put(&at, 0, 4);
    put(&at, 1, 2);
    put(&at, 1, 2);
    put(&at, length, 4);
    put(&at, begin, 4);
    put(&at, 0, 2);
    return (size_t)(at - out);
}

static manta_status extract_zip(const uint8_t *data, size_t n)
{
    zip z = {0};
    const uint8_t *bytes;
    void *owned = NULL;
    manta_status st = zip_parse("f.zip", data, n, &z);

    if (!st) st = zip_extract(&z, &z.entries[0], &bytes, &owned);
    mem_try_free(owned);
    zip_release(&z);
    return st;
}

/* A small archive that promises much is refused before anything is unpacked. */
static void zip_is_bounded(void **state)
{
    static uint8_t packed[3 << 20], whole[4 << 20];
    size_t n;

    (void)state;
    n = make_zip(packed, 1500000, 1500000000, whole); /* a ratio of 1000; the bytes are none of deflate's */
    assert_int_equal(extract_zip(whole, n), MANTA_ENOMEM);
    assert_error_says("f.zip: 1500000 packed bytes would become at least 1500000000");
    n = make_zip(packed, 2500000, 240000000, whole); /* ratio 96: only the deflate data is wrong */
    assert_int_equal(extract_zip(whole, n), MANTA_ECORRUPT);
    n = pack_zeros(-15, packed, sizeof packed);
    n = make_zip(packed, n, ZEROS, whole);
    setenv("MANTA_UNPACK_MAX", "1M", 1);
    assert_int_equal(extract_zip(whole, n), MANTA_ENOMEM);
    assert_error_says("MANTA_UNPACK_MAX");
    setenv("MANTA_UNPACK_MAX", "2M", 1);
    assert_int_equal(extract_zip(whole, n), MANTA_ECORRUPT);
    assert_error_says("checksum"); /* it was unpacked */
}

static void gzip_idx_is_bounded(void **state)
{
    /* 2^21 zeros whose first bytes would be a header: packed by hand, ours begins with one. */
    static uint8_t data[ZEROS + 16], packed[1 << 16];
    static const uint8_t head[8] = {0, 0, 8, 1, 0, 0x20, 0, 0};
    z_stream z = {.next_in = data, .avail_in = 8 + ZEROS, .next_out = packed, .avail_out = sizeof packed};
    idx_file f;

    (void)state;
    memcpy(data, head, sizeof head);
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    const char *path = scratch_file("f.idx.gz", packed, sizeof packed - z.avail_out);
    for (int allowed = 0; allowed < 2; allowed++) {
        input in = {0};
        setenv("MANTA_UNPACK_MAX", allowed ? "3M" : "1M", 1);
        assert_int_equal(input_read(path, &in), MANTA_OK);
        assert_int_equal(idx_begin(&in, &f), allowed ? MANTA_OK : MANTA_ENOMEM);
        if (!allowed) assert_error_says("MANTA_UNPACK_MAX");
        if (!allowed) continue;
        assert_int_equal(idx_finish(&f), MANTA_OK);
        idx_release(&f);
    }
}

static void gzip_tar_is_bounded(void **state)
{
    static uint8_t packed[1 << 16];
    seek_file f, out;
    const char *path = scratch_file("f.tar.gz", packed, pack_zeros(31, packed, sizeof packed));

    (void)state;
    assert_int_equal(seek_open(path, &f), MANTA_OK);
    setenv("MANTA_UNPACK_MAX", "1M", 1);
    assert_int_equal(tar_unpack(&f, &out), MANTA_ENOMEM);
    assert_error_says("MANTA_UNPACK_MAX");
    setenv("MANTA_UNPACK_MAX", "2M", 1);
    assert_int_equal(tar_unpack(&f, &out), MANTA_OK);
    assert_int_equal(out.size, ZEROS);
    seek_close(&out);
    seek_close(&f);
}

/* Both ways of unpacking: at once, where the size is known, and piece by piece. */
static void packed_tfrecord_is_bounded(void **state)
{
    static uint8_t packed[1 << 16];

    (void)state;
    for (int bits = 15; bits <= 31; bits += 16) {
        const char *path = scratch_file("f.tfrecord", packed, pack_zeros(bits, packed, sizeof packed));
        char *paths[] = {(char *)(uintptr_t)path};
        tfrecord *t = NULL;
        setenv("MANTA_UNPACK_MAX", "1M", 1);
        assert_int_equal(tfrecord_open(1, paths, &t), MANTA_ENOMEM);
        assert_error_says("MANTA_UNPACK_MAX");
        setenv("MANTA_UNPACK_MAX", "2M", 1);
        assert_int_equal(tfrecord_open(1, paths, &t), MANTA_ECORRUPT); /* zeros are no records */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(by_size_and_by_ratio, unset),
        cmocka_unit_test_teardown(as_the_environment_says, unset),
        cmocka_unit_test_teardown(zip_is_bounded, unset),
        cmocka_unit_test_teardown(gzip_idx_is_bounded, unset),
        cmocka_unit_test_teardown(gzip_tar_is_bounded, unset),
        cmocka_unit_test_teardown(packed_tfrecord_is_bounded, unset),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
