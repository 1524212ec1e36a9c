/* What servers and files say: lists, refusals, profiles, dates, ranges; and when to try again. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ok.h"
#include "web/http.h"
#include "web/ini.h"
#include "web/retry.h"
#include "web/s3.h"
#include "web/s3_call.h"
#include "web/s3_upload.h"
#include "web/xml.h"

static void expect_text(char *got, const char *wanted)
{
    if (wanted) {
        assert_non_null(got);
        assert_string_equal(got, wanted);
    } else {
        assert_null(got);
    }
    mem_free(got);
}

static void elements(void **state)
{
    static const char all[] =
        "<?xml version='1.0'?><E><Code>A&amp;B&#x41;&bad;</Code><Codes>x</Codes><None/><Half>y</E>";
    xml_span s = {all, sizeof all - 1}, inner;

    (void)state;
    expect_text(xml_text(s, "Code"), "A&BA&bad;");
    expect_text(xml_text(s, "Codes"), "x");
    expect_text(xml_text(s, "None"), "");
    expect_text(xml_text(s, "Half"), NULL);
    expect_text(xml_text(s, "Cod"), NULL);
    expect_text(xml_text((xml_span){"", 0}, "Code"), NULL);
    assert_true(xml_next(&s, "E", &inner));
    assert_int_equal(s.n, 0);
}

static void encoded_keys(void **state)
{
    char fine[] = "a%2Fb+c%C3%A9", cut[] = "a%2", nul[] = "a%00b";

    (void)state;
    assert_true(xml_decode_url(fine, true));
    assert_string_equal(fine, "a/b c\xc3\xa9");
    assert_false(xml_decode_url(cut, true));
    assert_false(xml_decode_url(nul, true));
}

static void lists(void **state)
{
    static const char text[] = "<ListBucketResult><IsTruncated>true</IsTruncated>"
                               "<NextContinuationToken>t=</NextContinuationToken>"
                               "<Contents><Key>p/</Key><Size>0</Size></Contents>"
                               "<Contents><Key>p/a%2Bb</Key><Size>12</Size></Contents>"
                               "<CommonPrefixes><Prefix>p/sub/</Prefix></CommonPrefixes></ListBucketResult>";
    static const char *const wrong[] = {
        "", "<html>", "<ListBucketResult><Contents></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>q</Key></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"};
    s3_entries e = {0};
    char *token = NULL;

    (void)state;
    assert_ok(s3_parse_list(text, sizeof text - 1, 2, &e, &token));
    expect_text(token, "t=");
    assert_int_equal(e.n, 3);
    assert_string_equal(e.at[0].name, "");
    assert_string_equal(e.at[1].name, "a+b");
    assert_int_equal(e.at[1].size, 12);
    assert_string_equal(e.at[2].name, "sub");
    assert_true(e.at[2].is_folder);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(s3_parse_list(wrong[i], strlen(wrong[i]), 2, &e, &token), MANTA_ECORRUPT);
        mem_free(token);
    }
    s3_entries_release(&e);
}

/* Of a whole bucket the prefix is empty, and so may be what a server calls a folder. */
static void lists_of_buckets(void **state)
{
    static const char text[] = "<ListBucketResult><CommonPrefixes><Prefix></Prefix></CommonPrefixes>"
                               "<CommonPrefixes><Prefix>/</Prefix></CommonPrefixes>"
                               "<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></ListBucketResult>";
    s3_entries e = {0};
    char *token = NULL;

    (void)state;
    assert_ok(s3_parse_list(text, sizeof text - 1, 0, &e, &token));
    assert_null(token);
    assert_int_equal(e.n, 1);
    assert_string_equal(e.at[0].name, "a");
    s3_entries_release(&e);
}

static void profiles(void **state)
{
    static const char text[] =
        "# [default]\nkey = no\n[default]\r\nkey = a=b \n ; x\n  key = nested\n[ other ]\n"
        "key=c\nkey=d\n[broken\nkey=e\n[default]\nlate = f";

    (void)state;
    expect_text(ini_get(text, sizeof text - 1, "default", "key"), "a=b");
    expect_text(ini_get(text, sizeof text - 1, "other", "key"), "d");
    expect_text(ini_get(text, sizeof text - 1, "default", "late"), "f");
    expect_text(ini_get(text, sizeof text - 1, "broken", "key"), NULL);
    expect_text(ini_get(text, sizeof text - 1, "default", "ke"), NULL);
    expect_text(ini_get("", 0, "default", "key"), NULL);
}

static void dates_and_ranges(void **state)
{
    (void)state;
    assert_int_equal(http_date_ns("Fri, 24 May 2013 00:00:00 GMT"), (int64_t)1369353600 * 1000000000);
    assert_int_equal(http_date_ns("Fri, 24 may 2013 00:00:00 GMT"), -1);
    assert_int_equal(http_date_ns("Fri, 24 May 2013 25:00:00 GMT"), -1);
    assert_int_equal(http_date_ns("Fri, 24 May 4024 00:00:00 GMT"),
                     -1); /* no 64 bits of nanoseconds hold it */
    assert_int_equal(http_date_ns(""), -1);
    assert_int_equal(http_range_total("bytes 0-4/10"), 10);
    assert_int_equal(http_range_total("bytes 0-4/*"), -1);
    assert_int_equal(http_range_total("bytes 0-4/99999999999999999999"), -1);
    expect_text(http_host("https://h:443/a"), "h");
    expect_text(http_host("http://h:443?a"), "h:443");
}

static void places(void **state)
{
    static const char *const wrong[] = {"s3://",      "s3:///a",    "s3://-a/b",
                                        "s3://a b/c", "s3://a@b/c", "http://a/b"};
    s3_place p = {0};

    (void)state;
    assert_ok(s3_place_parse("s3://bucket//a/b//", &p));
    assert_string_equal(p.bucket, "bucket");
    assert_string_equal(p.key, "a/b");
    s3_place_release(&p);
    assert_ok(s3_place_parse("s3://bucket", &p));
    assert_string_equal(p.key, "");
    s3_place_release(&p);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(s3_place_parse(wrong[i], &p), MANTA_EINVAL);
        assert_error_says("expected s3://BUCKET/PREFIX");
    }
}

static bool again(http_trouble trouble, int status)
{
    return retry_is_useful(&(http_call){.trouble = trouble, .status = status});
}

static void retries(void **state)
{
    (void)state;
    assert_true(again(HTTP_CUT, 0) && again(HTTP_CUT, 200) && again(HTTP_NAME, 0) && again(HTTP_SLOW, 0));
    assert_true(again(HTTP_NONE, 500) && again(HTTP_NONE, 503) && again(HTTP_NONE, 409) &&
                again(HTTP_NONE, 429));
    assert_false(again(HTTP_NONE, 200) || again(HTTP_NONE, 403) || again(HTTP_NONE, 404) ||
                 again(HTTP_NONE, 412));
    assert_false(again(HTTP_NONE, 501) || again(HTTP_TLS, 0) || again(HTTP_TOO_LONG, 200));
    for (int n = 0; n < 100; n++) {
        int least = retry_wait_ms(n, 0, ""), most = retry_wait_ms(n, UINT64_MAX, "");
        assert_in_range(least, 50, 2500);
        assert_in_range(most, least, 5000);
    }
    assert_int_equal(retry_wait_ms(0, 0, "3"), 3000);
    assert_int_equal(retry_wait_ms(0, 0, "999"), 10000);
    assert_int_equal(retry_wait_ms(0, 0, "-1"), 50);
}

static void sizes_of_parts(void **state)
{
    (void)state;
    assert_int_equal(s3_part_size(0), 8 << 20);
    for (uint64_t n = 1; n < (uint64_t)5 << 40; n = n * 3 + 1) {
        size_t part = s3_part_size(n);
        assert_true(part >= 8 << 20 && (n + part - 1) / part <= 10000);
    }
}

/* The call as it is answered, and the sentence that is made of it. */
static void expect_refusal(int status, const char *code, manta_status wanted, const char *what,
                           const char *remedy)
{
    s3_call c = {.doing = "writing", .bucket = "b", .key = "k/l", .tries = 3, .http = {.status = status}};

    buf_printf(&c.http.text, "<Error><Code>%s</Code><Message>said\n</Message></Error>", code);
    snprintf(c.http.region, sizeof c.http.region, "eu-west-9");
    assert_int_equal(s3_call_status(&c), wanted);
    assert_error_says("writing s3://b/k/l: ");
    assert_error_says(what);
    assert_error_says(remedy);
    s3_call_release(&c);
}

static void sentences(void **state)
{
    (void)state;
    expect_refusal(404, "NoSuchBucket", MANTA_ENOENT, "404 NoSuchBucket (said?) after 3 tries", "make it");
    expect_refusal(404, "NoSuchKey", MANTA_ENOENT, "404 NoSuchKey", "no such object");
    expect_refusal(301, "PermanentRedirect", MANTA_EINVAL, "301", "region eu-west-9: set AWS_REGION");
    expect_refusal(400, "AuthorizationHeaderMalformed", MANTA_EINVAL, "400", "eu-west-9");
    expect_refusal(403, "AccessDenied", MANTA_EPERM, "AccessDenied", "s3:GetObject");
    expect_refusal(403, "SignatureDoesNotMatch", MANTA_EPERM, "403", "are not valid there");
    expect_refusal(403, "RequestTimeTooSkewed", MANTA_EPERM, "403", "clock");
    expect_refusal(412, "PreconditionFailed", MANTA_EEXIST, "412", "there already");
    expect_refusal(507, "", MANTA_ENOSPC, "507", "make room");
    expect_refusal(501, "NotImplemented", MANTA_EUNSUPPORTED, "501", "cannot do it");
    expect_refusal(503, "SlowDown", MANTA_EIO, "503 SlowDown", "MANTA_S3_TIMEOUT_S");
    expect_refusal(500, "InternalError", MANTA_EIO, "500", "the server's");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements),         cmocka_unit_test(encoded_keys),     cmocka_unit_test(lists),
        cmocka_unit_test(profiles),         cmocka_unit_test(dates_and_ranges), cmocka_unit_test(places),
        cmocka_unit_test(retries),          cmocka_unit_test(sizes_of_parts),   cmocka_unit_test(sentences),
        cmocka_unit_test(lists_of_buckets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
