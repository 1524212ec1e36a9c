/* tar_test.c - tar archives, and what is wrong with them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/mem.h"
#include "format/webdataset/tar.h"
#include "ok.h"
#include "tar_maker.h"

static tar_maker m; /* one at a time: it is large */

/* Goes over the archive; gives the names and sizes as text, or the error. */
static manta_status list(const void *data, size_t size, buf *out)
{
    seek_file f = seek_over("f.tar", data, size);
    tar *t = mem_new(sizeof *t);
    tar_member k;
    bool end = false;
    manta_status st;

    tar_init(t, &f);
    while (!(st = tar_next(t, &k, &end)) && !end) {
        assert_true(k.at + k.size <= size);
        buf_printf(out, "%s=%llu;", k.name, (unsigned long long)k.size);
    }
    tar_release(t);
    mem_free(t);
    seek_close(&f);
    return st;
}

static void expect(const char *names)
{
    buf b = {0};
    int64_t live = mem_live();

    assert_ok(list(m.bytes, m.n, &b));
    assert_string_equal(buf_text(&b), names);
    buf_release(&b);
    assert_int_equal(mem_live(), live);
}

static void refuse(manta_status code, const char *word)
{
    buf b = {0};
    int64_t live = mem_live();
    manta_status st = list(m.bytes, m.n, &b);

    buf_release(&b);
    assert_fails_with(st, code, word);
    assert_error_says("f.tar: ");
    assert_int_equal(mem_live(), live);
}

static void members_are_listed(void **state)
{
    (void)state;
    char name[301];

    m.n = 0;
    tar_maker_text(&m, "a.txt", "hello");
    tar_maker_add(&m, '5', "folder/", NULL, 0);
    tar_maker_add(&m, 0, "folder/b", "", 0);
    tar_maker_add(&m, '2', "link", NULL, 0);
    tar_maker_add(&m, '7', "c", "0123456789", 10);
    tar_maker_end(&m);
    expect("a.txt=5;folder/b=0;c=10;");

    /* GNU's long names, which are for the next member only; 'K' is for links */
    memset(name, 'n', 300);
    name[300] = '\0';
    m.n = 0;
    tar_maker_add(&m, 'K', "././@LongLink", name, 301);
    tar_maker_add(&m, 'L', "././@LongLink", name, 301);
    tar_maker_text(&m, "short", "x");
    tar_maker_text(&m, "next", "y");
    tar_maker_end(&m);
    char want[400];
    snprintf(want, sizeof want, "%s=1;next=1;", name);
    expect(want);

    /* pax: path and size; a global header; other keys; one for a folder */
    m.n = 0;
    static const char pax[] = "13 path=p/q/\n20 comment=whatever\n9 size=3\n";
    tar_maker_add(&m, 'g', "pax_global_header", "13 comment=x\n", 13);
    tar_maker_add(&m, 'x', "PaxHeaders/a", pax, sizeof pax - 1);
    size_t at = tar_maker_add(&m, '0', "a", "abc", 3);
    memcpy(m.bytes + at + 124, "00000000000", 12); /* the header's own size is not the one */
    tar_maker_sum(&m, at);
    tar_maker_add(&m, 'x', "PaxHeaders/b", "14 path=wrong\n", 14);
    tar_maker_add(&m, '5', "b", NULL, 0);
    tar_maker_text(&m, "c", "");
    expect("p/q/=3;c=0;"); /* also without the blocks of zeros at the end */

    /* ustar's prefix, and a name and prefix without a zero byte at their ends */
    m.n = 0;
    at = tar_maker_text(&m, name, "");
    memset(m.bytes + at, 'a', 100);
    memset(m.bytes + at + 345, 'b', 155);
    tar_maker_sum(&m, at);
    tar_maker_end(&m);
    memset(want, 'b', 155);
    want[155] = '/';
    memset(want + 156, 'a', 100);
    strcpy(want + 256, "=0;");
    expect(want);

    /* a size in base 256, the sum of signed bytes, names with odd bytes */
    m.n = 0;
    at = tar_maker_add(&m, '0', "\xff\xfe", "abcd", 4);
    memset(m.bytes + at + 124, 0, 12);
    m.bytes[at + 124] = 0x80;
    m.bytes[at + 135] = 4;
    int sum = 0;
    memset(m.bytes + at + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += (int8_t)m.bytes[at + (size_t)i];
    snprintf((char *)m.bytes + at + 148, 8, "%06o", (unsigned)sum);
    expect("\xff\xfe=4;");
}

static void wrong_archives_are_refused(void **state)
{
    (void)state;
    size_t at;

    m.n = 0;
    refuse(MANTA_ECORRUPT, "empty");
    m.n = 100;
    refuse(MANTA_ECORRUPT, "a header is cut off");
    memset(m.bytes, 'x', m.n = 1024);
    refuse(MANTA_ECORRUPT, "offset 0: the checksum of a header is wrong");

    static const struct {
        const char *size, *word;
    } sizes[] = {{"77777777777", "the member has 8589934591 bytes, but only"},
                 {"0000000000x", "no number"},
                 {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "no number"},
                 {"\x80\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff", "no number"}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        m.n = 0;
        at = tar_maker_text(&m, "a", "abc");
        memcpy(m.bytes + at + 124, sizes[i].size, 12);
        tar_maker_sum(&m, at);
        refuse(MANTA_ECORRUPT, sizes[i].word);
    }
    /* 2^63 - 512: at + size would overflow a signed offset */
    m.n = 0;
    at = tar_maker_text(&m, "a", "abc");
    memcpy(m.bytes + at + 124, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xfe\0", 12);
    tar_maker_sum(&m, at);
    refuse(MANTA_ECORRUPT, "but only 512 follow");

    m.n = 0;
    tar_maker_text(&m, "a", "abc");
    tar_maker_end(&m);
    tar_maker_text(&m, "b", "joined");
    tar_maker_end(&m);
    refuse(MANTA_ECORRUPT, "bytes follow the archive's end at offset 1024");

    static const char *const records[] = {"x path=a\n",
                                          "9 path=a",
                                          "99 path=a\n",
                                          "2 path=a\n",
                                          "9 pathaa\n",
                                          "9 size=x\n",
                                          "29 size=99999999999999999999\n",
                                          "3 \n",
                                          " path=a\n"};
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        m.n = 0;
        tar_maker_add(&m, 'x', "h", records[i], strlen(records[i]));
        tar_maker_text(&m, "a", "abc");
        tar_maker_end(&m);
        refuse(MANTA_ECORRUPT, "pax header");
    }
    m.n = 0;
    tar_maker_add(&m, 'x', "h", "22 GNU.sparse.major=1\n", 22);
    tar_maker_text(&m, "a", "abc");
    refuse(MANTA_EUNSUPPORTED, "sparse");
    m.n = 0;
    tar_maker_add(&m, 'S', "a", NULL, 0);
    refuse(MANTA_EUNSUPPORTED, "offset 0: the member is sparse");
    m.n = 0;
    tar_maker_add(&m, 'g', "h", "9 path=a\n", 9);
    refuse(MANTA_ECORRUPT, "a global pax header");
    m.n = 0;
    tar_maker_add(&m, 'L', "h", "name", 5);
    tar_maker_end(&m);
    refuse(MANTA_ECORRUPT, "a header's member is missing");
    m.n = 0;
    static char huge[70000];
    tar_maker_add(&m, 'L', "h", huge, sizeof huge);
    tar_maker_text(&m, "a", "abc");
    refuse(MANTA_ECORRUPT, "too long to be believed");
}

/* Cut anywhere, an archive is refused or holds its first members. */
static void a_cut_archive_is_refused_or_holds_its_first_members(void **state)
{
    (void)state;
    int whole = 0;

    m.n = 0;
    tar_maker_add(&m, 'x', "h", "16 path=pax.txt\n", 16);
    tar_maker_text(&m, "a", "abc");
    tar_maker_add(&m, 'L', "h", "long.txt", 9);
    tar_maker_text(&m, "b", "abc");
    tar_maker_end(&m);
    for (size_t n = 0; n < m.n; n++) {
        buf b = {0};
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, m.bytes, n);
        manta_status st = list(copy, n, &b);
        free(copy);
        if (st) {
            assert_int_equal(st, MANTA_ECORRUPT);
        } else {
            assert_true(strcmp(buf_text(&b), "pax.txt=3;") == 0 ||
                        strcmp(buf_text(&b), "pax.txt=3;long.txt=3;") == 0);
            whole++;
        }
        buf_release(&b);
    }
    /* within the padding of the two files, and between blocks of zeros */
    assert_true(whole > 500 && whole < 1600);
}

static size_t gzip(const void *data, size_t n, uint8_t *out, size_t room)
{
    z_stream z = {0};

    if (deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END) abort();
    deflateEnd(&z);
    return z.total_out;
}

static void packed_archives_are_unpacked(void **state)
{
    (void)state;
    static uint8_t packed[1 << 16];
    seek_file unpacked = {0};
    bool is = true;

    m.n = 0;
    for (int i = 0; i < 300; i++) tar_maker_text(&m, "a", "some text in it"); /* grows more than once */
    size_t half = gzip(m.bytes, m.n / 2, packed, sizeof packed);
    size_t n = half + gzip(m.bytes + m.n / 2, m.n - m.n / 2, packed + half, sizeof packed - half);
    seek_file f = seek_over("f.tar", m.bytes, m.n);
    assert_int_equal(tar_is_packed(&f, &is), MANTA_OK);
    assert_false(is);
    seek_close(&f);
    int64_t live = mem_live();
    for (size_t k = 0; k <= n; k++) {
        f = seek_over("f.tar", packed, k);
        assert_int_equal(tar_is_packed(&f, &is), MANTA_OK);
        assert_int_equal(is, k >= 2);
        manta_status st = tar_unpack(&f, &unpacked);
        seek_close(&f);
        if (k == n) {
            assert_int_equal(st, MANTA_OK);
            assert_int_equal(unpacked.size, m.n);
            assert_memory_equal(unpacked.data, m.bytes, m.n);
            seek_close(&unpacked);
        } else if (k == half) { /* the first of two members, whole */
            assert_int_equal(st, MANTA_OK);
            seek_close(&unpacked);
        } else {
            assert_int_equal(st, MANTA_ECORRUPT);
            assert_error_says("cut off");
        }
        assert_int_equal(mem_live(), live);
    }
    packed[half / 2] ^= 0x55;
    f = seek_over("f.tar", packed, n);
    assert_int_equal(tar_unpack(&f, &unpacked), MANTA_ECORRUPT);
    assert_error_says("the gzip data is damaged");
    packed[half / 2] ^= 0x55;
    mem_fail_at(2, 0);
    manta_status st = tar_unpack(&f, &unpacked);
    mem_fail_at(0, 0);
    assert_int_equal(st, MANTA_ENOMEM);
    seek_close(&f);
    assert_int_equal(mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_listed),
        cmocka_unit_test(wrong_archives_are_refused),
        cmocka_unit_test(a_cut_archive_is_refused_or_holds_its_first_members),
        cmocka_unit_test(packed_archives_are_unpacked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
