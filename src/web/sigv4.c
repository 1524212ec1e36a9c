/* sigv4.c - see sigv4.h.
 *
 *   canonical   method, path, sorted query, sorted headers, their names, payload's sum
 *   to_sign     algorithm, time, scope, sum of canonical
 *   key         HMAC of day, region, service, "aws4_request", each with the one before
 *   signature   HMAC of to_sign with that key */
#include "web/sigv4.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "base/vec.h"

typedef VEC(char *) texts;

static void texts_release(texts *t)
{
    for (size_t i = 0; i < t->n; i++) mem_free(t->at[i]);
    vec_release(t);
}

void sigv4_time(int64_t time_s, char out[SIGV4_TIME])
{
    time_t t = (time_t)time_s;
    struct tm tm = {0};

    gmtime_r(&t, &tm);
    if (!strftime(out, SIGV4_TIME, "%Y%m%dT%H%M%SZ", &tm)) out[0] = '\0';
}

void sigv4_encode(buf *to, const char *text, size_t n, bool path)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                     c == '.' || c == '_' || c == '~' || (path && c == '/');
        if (plain) {
            buf_add_char(to, (char)c);
        } else {
            buf_printf(to, "%%%02X", c);
        }
    }
}

void sigv4_payload(const void *data, size_t n, char out[65])
{
    unsigned char sum[32];
    sha256 s;

    sha256_init(&s);
    sha256_add(&s, data, n);
    sha256_final(&s, sum);
    sha256_text(sum, out);
}

/* HMAC-SHA-256 (RFC 2104). */
static void sum_keyed(const void *key, size_t key_n, const void *data, size_t n, unsigned char out[32])
{
    unsigned char pad[64] = {0}, inner[32];
    sha256 s;

    if (key_n > sizeof pad) {
        sha256_init(&s);
        sha256_add(&s, key, key_n);
        sha256_final(&s, pad);
    } else {
        memcpy(pad, key, key_n);
    }
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36;
    sha256_init(&s);
    sha256_add(&s, pad, sizeof pad);
    sha256_add(&s, data, n);
    sha256_final(&s, inner);
    for (size_t i = 0; i < sizeof pad; i++) pad[i] ^= 0x36 ^ 0x5c;
    sha256_init(&s);
    sha256_add(&s, pad, sizeof pad);
    sha256_add(&s, inner, sizeof inner);
    sha256_final(&s, out);
    explicit_bzero(pad, sizeof pad);
    explicit_bzero(inner, sizeof inner);
    explicit_bzero(&s, sizeof s);
}

/* ---- the canonical request ---- */

/* Names before values: "a-b:x" comes behind "a:x", although "-" is less than ":". */
static int by_name(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    size_t n = strcspn(x, ":="), m = strcspn(y, ":=");
    int order = memcmp(x, y, n < m ? n : m);

    if (order) return order;
    if (n != m) return n < m ? -1 : 1;
    return strcmp(x + n, y + m);
}

/* Pairs in the order of their bytes, each with its "=". */
static void add_query(buf *to, const char *query)
{
    texts all = {0};

    for (const char *p = query; p && *p;) {
        size_t n = strcspn(p, "&");
        if (n) vec_push(&all, mem_printf("%.*s%s", (int)n, p, memchr(p, '=', n) ? "" : "="));
        p += n + (p[n] == '&');
    }
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_name);
    for (size_t i = 0; i < all.n; i++) buf_printf(to, "%s%s", i ? "&" : "", all.at[i]);
    texts_release(&all);
}

/* "name:value": the name in small letters, the value with single spaces and none around it. */
static char *plain_header(const char *header)
{
    const char *colon = strchr(header, ':'), *p;
    buf to = {0};

    for (p = header; colon && p < colon; p++) buf_add_char(&to, (char)tolower((unsigned char)*p));
    buf_add_char(&to, ':');
    for (p = colon ? colon + 1 : ""; *p; p++) {
        bool space = *p == ' ' || *p == '\t';
        if (!space) {
            buf_add_char(&to, *p);
        } else if (to.at[to.n - 1] != ':' && to.at[to.n - 1] != ' ' && p[1]) {
            buf_add_char(&to, ' ');
        }
    }
    while (to.n && to.at[to.n - 1] == ' ') buf_cut(&to, to.n - 1);
    return buf_take(&to);
}

/* The canonical request; the names of the signed headers go to `names`. */
static void make_canonical(const sigv4_request *r, buf *to, buf *names)
{
    texts all = {0};

    vec_push(&all, mem_printf("host:%s", r->host));
    for (int i = 0; i < r->n_headers; i++) vec_push(&all, plain_header(r->headers[i]));
    qsort(all.at, all.n, sizeof *all.at, by_name);
    buf_printf(to, "%s\n%s\n", r->method, *r->path ? r->path : "/");
    add_query(to, r->query);
    buf_add_char(to, '\n');
    for (size_t i = 0; i < all.n; i++) {
        buf_printf(to, "%s\n", all.at[i]);
        buf_printf(names, "%s%.*s", i ? ";" : "", (int)strcspn(all.at[i], ":"), all.at[i]);
    }
    buf_printf(to, "\n%s\n%s", buf_text(names), r->payload);
    texts_release(&all);
}

static void make_key(const sigv4_request *r, const sigv4_keys *k, const char *day, unsigned char key[32])
{
    char *first = mem_printf("AWS4%s", k->secret);

    sum_keyed(first, strlen(first), day, strlen(day), key);
    explicit_bzero(first, strlen(first));
    mem_free(first);
    sum_keyed(key, 32, r->region, strlen(r->region), key);
    sum_keyed(key, 32, r->service, strlen(r->service), key);
    sum_keyed(key, 32, "aws4_request", strlen("aws4_request"), key);
}

void sigv4_sign(const sigv4_request *r, const sigv4_keys *k, sigv4_result *out)
{
    char at[SIGV4_TIME], day[9], sum[65];
    unsigned char key[32], signature[32];
    buf names = {0};
    char *scope;

    sigv4_time(r->time_s, at);
    snprintf(day, sizeof day, "%.8s", at);
    scope = mem_printf("%s/%s/%s/aws4_request", day, r->region, r->service);
    make_canonical(r, &out->canonical, &names);
    sigv4_payload(out->canonical.at, out->canonical.n, sum);
    buf_printf(&out->to_sign, "AWS4-HMAC-SHA256\n%s\n%s\n%s", at, scope, sum);
    make_key(r, k, day, key);
    sum_keyed(key, sizeof key, out->to_sign.at, out->to_sign.n, signature);
    sha256_text(signature, sum);
    buf_printf(&out->authorization, "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
               k->id, scope, buf_text(&names), sum);
    explicit_bzero(key, sizeof key);
    buf_release(&names);
    mem_free(scope);
}

static void wipe_bytes(buf *b)
{
    if (b->at) explicit_bzero(b->at, b->cap);
    buf_release(b);
}

void sigv4_release(sigv4_result *s)
{
    wipe_bytes(&s->canonical);
    wipe_bytes(&s->to_sign);
    wipe_bytes(&s->authorization);
}
