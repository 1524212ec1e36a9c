/* web_fuzz.c - what servers of S3 answer, and the files of ~/.aws. The first byte chooses. */
#include <stdio.h>

#include "fuzz.h"
#include "web/aws.h"
#include "web/http.h"
#include "web/ini.h"
#include "web/s3.h"
#include "web/s3_call.h"
#include "web/xml.h"

static void read_list(const char *text, size_t n)
{
    s3_entries e = {0};
    char *token = NULL;

    fuzz_expect(s3_parse_list(text, n, n % 3, &e, &token)); /* 0: a whole bucket */
    s3_entries_release(&e);
    mem_free(token);
}

static void read_refusal(const char *text, size_t n)
{
    s3_call c = {.doing = "writing", .bucket = "b", .key = "k", .http = {.status = 400 + (int)(n % 120)}};

    buf_add(&c.http.text, text, n);
    snprintf(c.http.date, sizeof c.http.date, "%.*s", (int)(n < 100 ? n : 100), text);
    fuzz_expect(s3_call_status(&c));
    aws_keys_forget(); /* what this machine has */
    s3_call_release(&c);
}

static void read_fields(const char *text)
{
    s3_place p = {0};

    (void)http_date_ns(text);
    (void)http_range_total(text);
    mem_free(http_host(text));
    fuzz_expect(s3_place_parse(text, &p));
    s3_place_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    char *text;

    if (!size) return 0;
    text = mem_strndup((const char *)data + 1, size - 1);
    switch (data[0] % 4) {
    case 0: read_list((const char *)data + 1, size - 1); break;
    case 1: read_refusal((const char *)data + 1, size - 1); break;
    case 2: mem_free(ini_get((const char *)data + 1, size - 1, "default", "key")); break;
    default: read_fields(text); break;
    }
    mem_free(text);
    fuzz_balance(live);
    return 0;
}
