/* s3_refusal.c - the sentence of a call of S3 that failed: what was being done to which
 * key of which bucket, what came, and what would help. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "web/aws.h"
#include "web/s3_call.h"
#include "web/xml.h"

/* The last of a key, which is what tells keys apart, where it is long. */
static const char *short_key(const char *key)
{
    size_t n = strlen(key);

    return n > 120 ? key + n - 120 : key;
}

static char *host_of(const s3_call *c)
{
    aws_server s = {0};
    char *host;

    if (aws_server_get(&s)) return mem_strdup("the server");
    if (s.endpoint) {
        host = http_host(s.endpoint);
    } else {
        host = mem_printf("%s%ss3.%s.amazonaws.com", s.virtual_host ? c->bucket : "",
                          s.virtual_host ? "." : "", s.region);
    }
    aws_server_release(&s);
    return host;
}

static manta_status fail_trouble(const s3_call *c)
{
    static const struct {
        manta_status code;
        const char *what, *remedy;
    } words[] = {
        [HTTP_ADDRESS] = {MANTA_EINVAL, "the address is none", "check AWS_ENDPOINT_URL"},
        [HTTP_NAME] = {MANTA_EIO, "the name of the host is not known",
                       "check AWS_ENDPOINT_URL, AWS_REGION and the network's name server"},
        [HTTP_CONNECT] = {MANTA_EIO, "there is no connection",
                          "check AWS_ENDPOINT_URL, and whether the server can be reached from here"},
        [HTTP_TLS] = {MANTA_EIO, "there is no trust",
                      "AWS_CA_BUNDLE names the certificates of a server of your own"},
        [HTTP_CUT] = {MANTA_EIO, "the connection was cut", "try again"},
        [HTTP_SLOW] = {MANTA_ETIMEDOUT, "no answer came in time",
                       "MANTA_S3_TIMEOUT_S gives it more than 60 seconds"},
        [HTTP_TOO_LONG] = {MANTA_EIO, "it answered with too much", "is it a server of S3?"},
        [HTTP_STOPPED] = {MANTA_EBUSY, "the lock of the place was lost meanwhile", "see who has it"},
        [HTTP_OTHER] = {MANTA_EIO, "the call failed", "try again"},
    };
    char *host = host_of(c);
    manta_status st;

    st = manta_fail(words[c->http.trouble].code, "%s s3://%s/%s: %s at %s (%.90s; tries: %d); %s", c->doing,
                    c->bucket, short_key(c->key), words[c->http.trouble].what, host, c->http.why, c->tries,
                    words[c->http.trouble].remedy);
    mem_free(host);
    return st;
}

/* ---- answers ---- */

typedef struct refusal {
    const s3_call *c;
    char *code, *said; /* S3's own words; never NULL */
} refusal;

static manta_status refuse_request(const refusal *r, manta_status st, const char *remedy)
{
    const s3_call *c = r->c;
    char tries[40] = "";

    if (c->tries > 1) snprintf(tries, sizeof tries, " after %d tries", c->tries);
    return manta_fail(st, "%s s3://%s/%s: the server answered %d %s%s%.60s%s%s; %s", c->doing, c->bucket,
                      short_key(c->key), c->http.status, r->code, *r->said ? " (" : "", r->said,
                      *r->said ? ")" : "", tries, remedy);
}

static manta_status refuse_clock(const refusal *r)
{
    int64_t there = http_date_ns(r->c->http.date);
    char text[120];

    snprintf(text, sizeof text, "this machine's clock is %lld s away from the server's: set it",
             there < 0 ? 0LL : (long long)((clock_wall_ns() - there) / 1000000000));
    return refuse_request(r, MANTA_EPERM, there < 0 ? "set this machine's clock" : text);
}

static manta_status refuse_region(const refusal *r)
{
    char text[HTTP_FIELD + 80];

    if (!r->c->http.region[0])
        return refuse_request(r, MANTA_EINVAL, "AWS_REGION must name the bucket's region");
    snprintf(text, sizeof text, "the bucket is in region %s: set AWS_REGION", r->c->http.region);
    return refuse_request(r, MANTA_EINVAL, text);
}

static manta_status refuse_keys(const refusal *r)
{
    aws_keys k = {0};
    char text[220];
    bool wrong = !strcmp(r->code, "SignatureDoesNotMatch") || !strcmp(r->code, "InvalidAccessKeyId") ||
                 !strcmp(r->code, "ExpiredToken") || !strcmp(r->code, "InvalidToken");

    if (aws_keys_get(&k)) snprintf(k.source, sizeof k.source, "nowhere");
    if (wrong) {
        snprintf(text, sizeof text, "the credentials (from %s) are not valid there", k.source);
    } else {
        snprintf(text, sizeof text,
                 "the credentials (from %s) may not do this: expected s3:GetObject, PutObject, DeleteObject, "
                 "ListBucket and AbortMultipartUpload",
                 k.source);
    }
    aws_keys_release(&k);
    return refuse_request(r, MANTA_EPERM, text);
}

static manta_status fail_answer(const refusal *r)
{
    int status = r->c->http.status;
    const char *code = r->code;

    if (!strcmp(code, "RequestTimeTooSkewed")) return refuse_clock(r);
    if (!strcmp(code, "NoSuchBucket"))
        return refuse_request(r, MANTA_ENOENT, "there is no such bucket: make it, or correct its name");
    if (status == 301 || status == 307 || !strcmp(code, "AuthorizationHeaderMalformed") ||
        !strcmp(code, "PermanentRedirect"))
        return refuse_region(r);
    if (status == 401 || status == 403 || !strcmp(code, "ExpiredToken") || !strcmp(code, "InvalidToken"))
        return refuse_keys(r);
    if (status == 404) return refuse_request(r, MANTA_ENOENT, "there is no such object");
    if (status == 412)
        return refuse_request(r, MANTA_EEXIST, "it is there already, or has been changed by another");
    if (status == 507 || !strcmp(code, "QuotaExceeded")) return refuse_request(r, MANTA_ENOSPC, "make room");
    if (status == 501 || !strcmp(code, "NotImplemented"))
        return refuse_request(r, MANTA_EUNSUPPORTED, "this server cannot do it");
    if (status == 503 || status == 429)
        return refuse_request(r, MANTA_EIO, "it has too much to do: MANTA_S3_TIMEOUT_S tries for longer");
    return refuse_request(r, MANTA_EIO, status >= 500 ? "the fault is the server's" : "expected 200 to 299");
}

/* Only what can stand in a sentence. */
static void clean_text(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || (unsigned char)*s >= 127) *s = '?';
}

manta_status s3_call_status(const s3_call *c)
{
    xml_span all = {buf_text(&c->http.text), c->http.text.n};
    refusal r = {.c = c};
    manta_status st;

    if (c->http.trouble) return fail_trouble(c);
    if (c->http.status >= 200 && c->http.status < 300) return MANTA_OK;
    if (!(r.code = xml_text(all, "Code"))) r.code = mem_strdup("");
    if (!(r.said = xml_text(all, "Message"))) r.said = mem_strdup("");
    if (strlen(r.code) > 60) r.code[60] = '\0';
    clean_text(r.code);
    clean_text(r.said);
    st = fail_answer(&r);
    mem_free(r.code);
    mem_free(r.said);
    return st;
}
