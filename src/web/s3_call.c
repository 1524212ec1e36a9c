/* s3_call.c - see s3_call.h.
 *
 *   address      https://BUCKET.s3.REGION.amazonaws.com/KEY, or ENDPOINT/BUCKET/KEY
 *   signature    anew for each try: it holds the time
 *   retries      retry.h says which and when; all that are left wait together
 *   sentence     s3_refusal.c */
#include "web/s3_call.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/sys.h"
#include "web/aws.h"
#include "web/retry.h"
#include "web/sigv4.h"

enum { TIMEOUT_S = 60, TIMEOUT_MOST_S = 86400 };

int64_t s3_timeout_ms(void)
{
    const char *text = getenv("MANTA_S3_TIMEOUT_S");
    long s = text ? strtol(text, NULL, 10) : 0;

    return (s > 0 && s <= TIMEOUT_MOST_S ? s : TIMEOUT_S) * 1000;
}

/* ---- address and signature ---- */

typedef struct address {
    buf url;
    char *host;
    char *path;
} address;

static void address_release(address *a)
{
    buf_release(&a->url);
    mem_free(a->host);
    mem_free(a->path);
}

static void make_address(const s3_call *c, const aws_server *s, address *out)
{
    /* A name with dots does not fit the certificate of *.s3.amazonaws.com. */
    bool inside = s->virtual_host && !(strchr(c->bucket, '.') && !s->endpoint);
    buf path = {0};
    size_t n;

    if (!s->endpoint && inside) {
        buf_printf(&out->url, "https://%s.s3.%s.amazonaws.com", c->bucket, s->region);
    } else if (!s->endpoint) {
        buf_printf(&out->url, "https://s3.%s.amazonaws.com", s->region);
    } else if (inside) {
        n = (size_t)(strstr(s->endpoint, "://") - s->endpoint) + 3;
        buf_printf(&out->url, "%.*s%s.%s", (int)n, s->endpoint, c->bucket, s->endpoint + n);
    } else {
        buf_add_text(&out->url, s->endpoint);
    }
    out->host = http_host(buf_text(&out->url));
    if (!inside) buf_printf(&path, "/%s", c->bucket);
    buf_add_char(&path, '/');
    sigv4_encode(&path, c->key, strlen(c->key), true);
    out->path = buf_take(&path);
    buf_add_text(&out->url, out->path);
    if (c->query && *c->query) buf_printf(&out->url, "?%s", c->query);
}

/* Gives the call the headers it was asked with, and those of the signature. */
static void sign_call(s3_call *c, const address *a, const aws_server *s, const aws_keys *k)
{
    http_call *h = &c->http;
    char payload[65], at[SIGV4_TIME];
    sigv4_result made = {0};
    int64_t now_s = clock_wall_ns() / 1000000000;

    for (size_t i = 0; i < h->headers.n; i++) mem_free(h->headers.at[i]);
    vec_clear(&h->headers);
    for (int i = 0; i < S3_HEADERS && c->headers[i]; i++) vec_push(&h->headers, mem_strdup(c->headers[i]));
    if (!k->id) return;
    sigv4_payload(c->body, c->size, payload);
    sigv4_time(now_s, at);
    http_add_header(h, "x-amz-content-sha256", payload);
    http_add_header(h, "x-amz-date", at);
    if (k->token) http_add_header(h, "x-amz-security-token", k->token);
    sigv4_sign(&(sigv4_request){.method = c->method,
                                .host = a->host,
                                .path = a->path,
                                .query = c->query,
                                .headers = (const char *const *)h->headers.at,
                                .n_headers = (int)h->headers.n,
                                .payload = payload,
                                .region = s->region,
                                .service = "s3",
                                .time_s = now_s},
               &(sigv4_keys){k->id, k->secret, k->token}, &made);
    http_add_header(h, "Authorization", buf_text(&made.authorization));
    sigv4_release(&made);
}

/* ---- what may be changed ---- */

static _Atomic(s3_change_fn *) on_change;

void s3_on_change(s3_change_fn *may)
{
    atomic_store(&on_change, may);
}

/* Whether others see what the call does: an object comes, goes, or is finished. */
static bool is_seen(const s3_call *c)
{
    if (!strcmp(c->method, "POST")) return c->query && !strncmp(c->query, "uploadId=", 9);
    return !c->query && (!strcmp(c->method, "PUT") || !strcmp(c->method, "DELETE"));
}

static manta_status ask_change(void *ctx)
{
    const s3_call *c = ctx;
    s3_change_fn *may = atomic_load(&on_change);

    return may && is_seen(c) ? may(c->bucket, c->key) : MANTA_OK;
}

/* ---- performing ---- */

/* One try of those that are marked. */
static manta_status try_calls(s3_call *calls, const bool *left, int n, int64_t deadline)
{
    http_call *all[S3_TOGETHER];
    address at[S3_TOGETHER] = {0};
    aws_server s = {0};
    aws_keys k = {0};
    int m = 0;
    manta_status st = aws_server_get(&s);

    if (!st) st = aws_keys_get(&k);
    for (int i = 0; i < n && !st; i++) {
        s3_call *c = &calls[i];
        if (!left[i] || (st = ask_change(c))) continue;
        make_address(c, &s, &at[i]);
        c->http.method = c->method;
        c->http.url = buf_text(&at[i].url);
        c->http.body = c->body;
        c->http.size = c->size;
        c->http.to = c->to;
        c->http.room = c->room;
        c->http.deadline = deadline;
        c->http.may = ask_change;
        c->http.may_ctx = c;
        sign_call(c, &at[i], &s, &k);
        c->tries++;
        all[m++] = &c->http;
    }
    if (!st) st = http_perform(all, m);
    for (int i = 0; i < n; i++) address_release(&at[i]);
    aws_keys_release(&k);
    aws_server_release(&s);
    return st;
}

/* Whether the server says that the keys are of yesterday; once there may be newer ones. */
static bool is_expired(const s3_call *c)
{
    return c->tries == 1 && (c->http.status == 400 || c->http.status == 403) &&
           strstr(buf_text(&c->http.text), "ExpiredToken");
}

static void wait_ms(int ms)
{
    (void)os->poll(NULL, 0, ms); /* a signal ends it early, and the next try comes sooner */
}

manta_status s3_call_all(s3_call *calls, int n)
{
    static _Thread_local uint64_t seed;
    int64_t deadline = clock_deadline(s3_timeout_ms());
    bool left[S3_TOGETHER];

    if (!seed) seed = (uint64_t)clock_wall_ns() ^ (uint64_t)getpid() << 32 ^ (uintptr_t)&seed;
    for (int i = 0; i < n; i++) left[i] = true;
    for (int try = 0;; try++) {
        int again = 0, wait = 0;
        TRY(try_calls(calls, left, n, deadline));
        for (int i = 0; i < n; i++) {
            bool expired = left[i] && is_expired(&calls[i]);
            int ms;
            if (expired) aws_keys_forget();
            left[i] = left[i] && (expired || retry_is_useful(&calls[i].http));
            if (!left[i]) continue;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            ms = expired ? 0 : retry_wait_ms(try, seed >> 33, calls[i].http.retry_after);
            if (ms > wait) wait = ms;
            again++;
        }
        if (!again || clock_left_ms(deadline) <= wait) return MANTA_OK;
        wait_ms(wait);
    }
}

void s3_call_release(s3_call *c)
{
    http_release(&c->http);
}

manta_status s3_call_one(s3_call *c)
{
    TRY(s3_call_all(c, 1));
    return s3_call_status(c);
}
