/* sums_test.c - hash, sha256 and crc32c against their published values. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/sha256.h"

static void crc32c_gives_the_published_values(void **state)
{
    (void)state;
    unsigned char b[32];
    assert_int_equal(crc32c(0, "", 0), 0);
    assert_int_equal(crc32c(0, "123456789", 9), 0xE3069283);
    memset(b, 0, 32);
    assert_int_equal(crc32c(0, b, 32), 0x8A9136AA);
    memset(b, 0xFF, 32);
    assert_int_equal(crc32c(0, b, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++) b[i] = (unsigned char)i;
    assert_int_equal(crc32c(0, b, 32), 0x46DD794E);
    assert_int_equal(crc32c_table(0, b, 32), 0x46DD794E);
}

static void crc32c_ways_agree_at_every_length_and_cut(void **state)
{
    (void)state;
    static uint32_t words[1024];
    const unsigned char *b = (const unsigned char *)words;
    rng_fill(rng_make(9, 9), 0, 256, words);
    for (size_t from = 0; from < 9; from++)
        for (size_t n = 0; n <= 200; n++) {
            uint32_t whole = crc32c(0, b + from, n);
            assert_int_equal(whole, crc32c_table(0, b + from, n));
            size_t cut = n / 3;
            assert_int_equal(whole, crc32c(crc32c(0, b + from, cut), b + from + cut, n - cut));
        }
    for (size_t n = 700; n < 4000; n += 17) /* long enough to be summed in stretches */
        assert_int_equal(crc32c(5, b + n % 8, n), crc32c_table(5, b + n % 8, n));
}

static void sha_is(const char *text, size_t repeat, size_t step, const char *expected)
{
    sha256 s;
    unsigned char sum[32];
    char hex[65];

    sha256_init(&s);
    for (size_t i = 0; i < repeat; i++)
        for (size_t at = 0, n = strlen(text); at < n; at += step)
            sha256_add(&s, text + at, n - at < step ? n - at : step);
    sha256_final(&s, sum);
    sha256_text(sum, hex);
    assert_string_equal(hex, expected);
}

static void sha256_gives_the_published_values(void **state)
{
    (void)state;
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    sha_is("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha_is("abc", 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t step = 1; step <= 56; step++)
        sha_is(two_blocks, 1, step, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    sha_is("aaaaaaaaaa", 100000, 10, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* However the bytes are cut, across block boundaries too. */
static void sha256_does_not_depend_on_the_cuts(void **state)
{
    (void)state;
    unsigned char data[300], whole[32], parts[32];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7);
    for (size_t n = 0; n <= sizeof data; n++) {
        sha256 s;
        sha256_init(&s);
        sha256_add(&s, data, n);
        sha256_final(&s, whole);
        sha256_init(&s);
        for (size_t at = 0, step = 1; at < n; at += step, step = step * 2 % 61)
            sha256_add(&s, data + at, n - at < step ? n - at : step);
        sha256_final(&s, parts);
        assert_memory_equal(whole, parts, 32);
    }
}

static void hash_gives_the_published_values(void **state)
{
    (void)state;
    assert_true(hash_bytes("", 0, 0) == 0xEF46DB3751D8E999u);
    assert_true(hash_bytes("a", 1, 0) == 0xD24EC4F1A98C6E5Bu);
    assert_true(hash_bytes("abc", 3, 0) == 0x44BC2CF5AD770999u);
    /* 39 bytes: the lanes, and every step of the tail. */
    assert_true(hash_bytes("Nobody inspects the spammish repetition", 39, 0) == 0xFBCEA83C8A378BF1u);
}

static void hash_of_a_number_changes_half_the_bits(void **state)
{
    (void)state;
    int changed = 0, tries = 0;
    for (uint64_t x = 0; x < 200; x++)
        for (int bit = 0; bit < 64; bit++, tries++)
            changed += __builtin_popcountll(hash_u64(x) ^ hash_u64(x ^ (uint64_t)1 << bit));
    double mean = (double)changed / tries;
    assert_true(mean > 31 && mean < 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_gives_the_published_values),
        cmocka_unit_test(crc32c_ways_agree_at_every_length_and_cut),
        cmocka_unit_test(sha256_gives_the_published_values),
        cmocka_unit_test(sha256_does_not_depend_on_the_cuts),
        cmocka_unit_test(hash_gives_the_published_values),
        cmocka_unit_test(hash_of_a_number_changes_half_the_bits),
    };

    return cmocka_run_group_tests_name("base/sums", tests, NULL, NULL);
}
