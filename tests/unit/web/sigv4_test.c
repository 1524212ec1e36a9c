/* The four requests to S3 whose signatures Amazon has published, and what keeps order. */
#include "web/sigv4.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ok.h"

static const sigv4_keys keys = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL};

#define EMPTY        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define EMPTY_HEADER "x-amz-content-sha256: " EMPTY
enum { WHEN = 1369353600 }; /* 2013-05-24 00:00:00 UTC */

/* Signs a request to examplebucket as it was on that day, and compares. */
static void expect_signature(sigv4_request r, const char *signed_names, const char *signature)
{
    sigv4_result made = {0};
    char *end = mem_printf("SignedHeaders=%s, Signature=%s", signed_names, signature);

    r.host = "examplebucket.s3.amazonaws.com";
    r.region = "us-east-1";
    r.service = "s3";
    r.time_s = WHEN;
    sigv4_sign(&r, &keys, &made);
    assert_non_null(strstr(buf_text(&made.authorization), end));
    assert_non_null(
        strstr(buf_text(&made.authorization),
               "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "));
    mem_free(end);
    sigv4_release(&made);
}

static void get_object(void **state)
{
    static const char *const headers[] = {"Range: bytes=0-9", EMPTY_HEADER, "x-amz-date: 20130524T000000Z"};

    (void)state;
    expect_signature(
        (sigv4_request){
            .method = "GET", .path = "/test.txt", .headers = headers, .n_headers = 3, .payload = EMPTY},
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static void put_object(void **state)
{
    char payload[65], sum[100];
    const char *headers[] = {"Date: Fri, 24 May 2013 00:00:00 GMT", "x-amz-date: 20130524T000000Z",
                             "x-amz-storage-class:   REDUCED_REDUNDANCY ", sum};
    buf path = {0};

    (void)state;
    sigv4_payload("Welcome to Amazon S3.", strlen("Welcome to Amazon S3."), payload);
    snprintf(sum, sizeof sum, "X-Amz-Content-SHA256: %s", payload);
    sigv4_encode(&path, "/test$file.text", strlen("/test$file.text"), true);
    assert_string_equal(buf_text(&path), "/test%24file.text");
    expect_signature(
        (sigv4_request){
            .method = "PUT", .path = buf_text(&path), .headers = headers, .n_headers = 4, .payload = payload},
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    buf_release(&path);
}

static void queries(void **state)
{
    static const char *const headers[] = {EMPTY_HEADER, "x-amz-date: 20130524T000000Z"};
    sigv4_request r = {.method = "GET", .path = "/", .headers = headers, .n_headers = 2, .payload = EMPTY};

    (void)state;
    r.query = "lifecycle";
    expect_signature(r, "host;x-amz-content-sha256;x-amz-date",
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    r.query = "prefix=J&max-keys=2"; /* in any order */
    expect_signature(r, "host;x-amz-content-sha256;x-amz-date",
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

/* "a-b" lies behind "a", although "-" is less than the ":" or "=" that ends a name. */
static void names_sort_before_values(void **state)
{
    static const char *const headers[] = {"a-b: 1", "A:  2   3 "};
    sigv4_result made = {0};

    (void)state;
    sigv4_sign(&(sigv4_request){.method = "GET",
                                .host = "h",
                                .path = "",
                                .query = "a-b=1&a=2&&a=1",
                                .headers = headers,
                                .n_headers = 2,
                                .payload = "UNSIGNED-PAYLOAD",
                                .region = "r",
                                .service = "s"},
               &keys, &made);
    assert_string_equal(buf_text(&made.canonical),
                        "GET\n/\na=1&a=2&a-b=1\na:2 3\na-b:1\nhost:h\n\na;a-b;host\nUNSIGNED-PAYLOAD");
    sigv4_release(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_object),
        cmocka_unit_test(put_object),
        cmocka_unit_test(queries),
        cmocka_unit_test(names_sort_before_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
