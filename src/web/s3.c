/* s3.c - see s3.h. */
#include "web/s3.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "web/s3_call.h"
#include "web/sigv4.h"
#include "web/xml.h"

enum { PAGES = 10000, ENTRIES = 1 << 20, BUCKET_MOST = 63, KEY_MOST = 1024, HEADER = 200 };

/* ---- places ---- */

manta_status s3_place_parse(const char *path, s3_place *out)
{
    const char *bucket = path + strlen("s3://"), *key;
    size_t n, k;

    if (strncmp(path, "s3://", 5) != 0)
        return manta_fail(MANTA_EINVAL, "%.200s: expected s3://BUCKET/PREFIX", path);
    n = strcspn(bucket, "/");
    if (n < 1 || n > BUCKET_MOST ||
        strspn(bucket, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") != n ||
        !isalnum((unsigned char)*bucket))
        return manta_fail(MANTA_EINVAL,
                          "%.200s: expected s3://BUCKET/PREFIX with a bucket of up to %d letters, digits, "
                          "dots and dashes",
                          path, BUCKET_MOST);
    key = bucket + n;
    while (*key == '/') key++;
    k = strlen(key);
    while (k && key[k - 1] == '/') k--;
    if (k > KEY_MOST)
        return manta_fail(MANTA_EINVAL, "%.200s...: the key has %zu bytes, expected up to %d", path, k,
                          KEY_MOST);
    out->bucket = mem_strndup(bucket, n);
    out->key = mem_strndup(key, k);
    return MANTA_OK;
}

void s3_place_release(s3_place *p)
{
    mem_free(p->bucket);
    mem_free(p->key);
    *p = (s3_place){0};
}

static s3_call call_of(const s3_place *p, const char *doing, const char *method)
{
    return (s3_call){.doing = doing, .method = method, .bucket = p->bucket, .key = p->key};
}

/* ---- putting ---- */

/* After a refusal: MANTA_OK when what is there is what we have put. An earlier try may have gone well, one of
 * ours or one of libcurl's own, which sends again when a connection that it had kept is found dead. When
 * the object cannot be read nobody knows whose it is, and that is the failure. */
static manta_status look_for_ours(const s3_place *p, const void *data, size_t n, char etag[S3_ETAG])
{
    s3_object about = {0};
    size_t got = 0;
    manta_error why;
    manta_status st;
    char *there;

    manta_error_get(&why);
    if (n >= S3_PIECE) return why.code;
    there = mem_new(n + 1);
    st = s3_get(p, 0, there, n + 1, &got, &about);
    if (st == MANTA_ENOENT || (!st && (got != n || memcmp(there, data, n) != 0))) {
        st = manta_error_raise(&why); /* it is another's */
    } else if (!st && etag) {
        memcpy(etag, about.etag, sizeof about.etag);
    }
    mem_free(there);
    return st;
}

manta_status s3_put(const s3_place *p, const void *data, size_t n, s3_if when, char etag[S3_ETAG])
{
    s3_call c = call_of(p, "writing", "PUT");
    char match[HEADER];
    manta_status st;

    c.body = data ? data : "";
    c.size = n;
    if (when.absent) c.headers[0] = "If-None-Match: *";
    if (when.etag) {
        snprintf(match, sizeof match, "If-Match: %s", when.etag);
        c.headers[0] = match;
    }
    st = s3_call_one(&c);
    if (!st && etag) snprintf(etag, S3_ETAG, "%s", c.http.etag);
    if (st == MANTA_EEXIST) st = look_for_ours(p, c.body, n, etag);
    s3_call_release(&c);
    return st;
}

manta_status s3_remove(const s3_place *p)
{
    s3_call c = call_of(p, "removing", "DELETE");
    manta_status st = s3_call_one(&c);
    bool bucket = strstr(buf_text(&c.http.text), "NoSuchBucket") != NULL;

    s3_call_release(&c);
    return st == MANTA_ENOENT && !bucket ? MANTA_OK : st;
}

/* ---- getting ---- */

static void take_about(const http_call *h, s3_object *out)
{
    int64_t total = http_range_total(h->content_range);

    if (total < 0) total = h->length > 0 ? h->length : 0;
    *out = (s3_object){.size = (uint64_t)total,
                       .changed_ns = http_date_ns(h->last_modified),
                       .now_ns = http_date_ns(h->date)};
    snprintf(out->etag, sizeof out->etag, "%s", h->etag);
}

manta_status s3_look(const s3_place *p, s3_object *out)
{
    s3_call c = call_of(p, "looking at", "HEAD");
    manta_status st = s3_call_one(&c);

    if (!st) take_about(&c.http, out);
    s3_call_release(&c);
    return st;
}

/* One range of an object on its way. */
typedef struct range {
    s3_call call;
    uint64_t at;
    size_t most;
    char header[HEADER], match[HEADER];
} range;

static void make_range(range *r, const s3_place *p, uint64_t at, void *to, size_t most, const char *etag)
{
    *r = (range){.call = call_of(p, "reading", "GET"), .at = at, .most = most};
    snprintf(r->header, sizeof r->header, "Range: bytes=%llu-%llu", (unsigned long long)at,
             (unsigned long long)(at + most - 1));
    r->call.to = to;
    r->call.room = most;
    r->call.headers[0] = r->header;
    if (!etag || !*etag) return;
    snprintf(r->match, sizeof r->match, "If-Match: %s", etag);
    r->call.headers[1] = r->match;
}

/* Whether "bytes FROM-TO/ALL" is what was asked for, and as much as came. */
static bool is_asked_range(const range *r, uint64_t size)
{
    const http_call *h = &r->call.http;
    const char *text = h->content_range;
    unsigned long long from, to;
    char *end;

    if (strncmp(text, "bytes ", 6) != 0) return false;
    from = strtoull(text + 6, &end, 10);
    if (*end != '-') return false;
    to = strtoull(end + 1, &end, 10);
    return *end == '/' && from == r->at && to >= from && to - from + 1 == h->got && to < size &&
           (h->got == r->most || to + 1 == size);
}

/* What came for a range. 416: nothing lies at or behind its start. */
static manta_status check_range(const range *r, s3_object *about)
{
    const http_call *h = &r->call.http;

    if (h->status == 416 && !h->trouble) {
        *about = (s3_object){.changed_ns = -1, .now_ns = http_date_ns(h->date)};
        return MANTA_OK;
    }
    if (h->trouble == HTTP_TOO_LONG && h->status == 200)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "reading s3://%s/%s: the server sends the whole where a range was asked for",
                          r->call.bucket, r->call.key);
    TRY(s3_call_status(&r->call));
    take_about(h, about);
    if (h->status == 206 && is_asked_range(r, about->size)) return MANTA_OK;
    if (h->status != 206 && r->at == 0 && h->got == about->size) return MANTA_OK;
    return manta_fail(
        MANTA_EIO, "reading s3://%s/%s: %zu bytes from %llu on were asked for, and %zu of '%.60s' came",
        r->call.bucket, r->call.key, r->most, (unsigned long long)r->at, h->got, h->content_range);
}

manta_status s3_get(const s3_place *p, uint64_t at, void *to, size_t most, size_t *n, s3_object *about)
{
    s3_object here;
    range r;
    manta_status st;

    make_range(&r, p, at, to, most < S3_PIECE ? most : S3_PIECE, NULL);
    st = s3_call_all(&r.call, 1);
    if (!st) st = check_range(&r, &here);
    if (!st) *n = r.call.http.status == 416 ? 0 : r.call.http.got;
    if (!st && about) *about = here;
    s3_call_release(&r.call);
    return st;
}

/* Reads the ranges from *at on side by side and hands them on. */
static manta_status stream_some(const s3_place *p, const s3_object *about, char *room, uint64_t *at,
                                s3_piece_fn *fn, void *ctx)
{
    range all[S3_TOGETHER];
    s3_call calls[S3_TOGETHER];
    int n = 0;
    manta_status st;

    for (uint64_t from = *at; n < S3_TOGETHER && from < about->size; n++) {
        size_t most = about->size - from < S3_PIECE ? (size_t)(about->size - from) : S3_PIECE;
        make_range(&all[n], p, from, room + (size_t)n * S3_PIECE, most, about->etag);
        calls[n] = all[n].call;
        from += most;
    }
    st = s3_call_all(calls, n);
    for (int i = 0; i < n; i++) all[i].call = calls[i];
    for (int i = 0; i < n && !st; i++) {
        s3_object here;
        if (all[i].call.http.status == 412 && !all[i].call.http.trouble) {
            st = manta_fail(MANTA_EIO, "reading s3://%s/%s: it was changed while it was read", p->bucket,
                            p->key);
        } else if (!(st = check_range(&all[i], &here)) &&
                   (here.size != about->size || strcmp(here.etag, about->etag) != 0)) {
            st = manta_fail(MANTA_EIO, "reading s3://%s/%s: it was changed while it was read", p->bucket,
                            p->key);
        }
        if (!st) st = fn(ctx, about, all[i].call.to, all[i].most);
        *at += all[i].most;
    }
    for (int i = 0; i < n; i++) s3_call_release(&all[i].call);
    return st;
}

manta_status s3_stream(const s3_place *p, s3_piece_fn *fn, void *ctx)
{
    char *room = mem_try_raw((size_t)S3_TOGETHER * S3_PIECE);
    s3_object about = {0};
    size_t n = 0;
    uint64_t at;
    manta_status st;

    if (!room)
        return manta_fail(MANTA_ENOMEM, "reading s3://%s/%s: there is no memory for %d bytes", p->bucket,
                          p->key, S3_TOGETHER * S3_PIECE);
    st = s3_get(p, 0, room, S3_PIECE, &n, &about);
    if (!st && !n) about.size = 0;
    if (!st) st = fn(ctx, &about, room, n);
    for (at = n; !st && at < about.size;) st = stream_some(p, &about, room, &at, fn, ctx);
    mem_try_free(room);
    return st;
}

/* ---- listing ---- */

void s3_entries_release(s3_entries *e)
{
    for (size_t i = 0; i < e->n; i++) mem_free(e->at[i].name);
    vec_release(e);
}

/* Takes the name that is encoded, and gives it to the list where it lies behind the prefix. */
static bool take_name(char *name, size_t prefix_n, bool is_folder, uint64_t size, s3_entries *out)
{
    size_t n;
    bool fine = name && xml_decode_url(name, true) && (n = strlen(name)) >= prefix_n;

    if (fine && is_folder && n && name[n - 1] == '/') name[--n] = '\0';
    if (fine && (n > prefix_n || !is_folder))
        vec_push(out, ((s3_entry){mem_strdup(name + prefix_n), is_folder, size}));
    mem_free(name);
    return fine;
}

manta_status s3_parse_list(const char *text, size_t n, size_t prefix_n, s3_entries *out, char **token)
{
    xml_span all = {text, n}, rest, inner;
    char *more;
    bool fine = true;

    *token = NULL;
    rest = all;
    if (!xml_next(&rest, "ListBucketResult", &inner))
        return manta_fail(MANTA_ECORRUPT, "the server's answer is no list: expected ListBucketResult");
    rest = all = inner;
    while (fine && xml_next(&rest, "Contents", &inner)) {
        char *size = xml_text(inner, "Size");
        fine = take_name(xml_text(inner, "Key"), prefix_n, false, size ? strtoull(size, NULL, 10) : 0, out);
        mem_free(size);
    }
    rest = all;
    while (fine && xml_next(&rest, "CommonPrefixes", &inner))
        fine = take_name(xml_text(inner, "Prefix"), prefix_n, true, 0, out);
    more = xml_text(all, "IsTruncated");
    if (fine && more && !strcmp(more, "true")) {
        *token = xml_text(all, "NextContinuationToken");
        fine = *token != NULL;
    }
    mem_free(more);
    return fine ? MANTA_OK : manta_fail(MANTA_ECORRUPT, "the server's list has a key that cannot be");
}

static char *list_query(const char *prefix, bool deep, int most, const char *token)
{
    buf q = {0};

    buf_add_text(&q, "list-type=2&encoding-type=url&prefix=");
    sigv4_encode(&q, prefix, strlen(prefix), false);
    if (!deep) buf_add_text(&q, "&delimiter=%2F");
    if (most) buf_printf(&q, "&max-keys=%d", most);
    if (token) buf_add_text(&q, "&continuation-token=");
    if (token) sigv4_encode(&q, token, strlen(token), false);
    return buf_take(&q);
}

manta_status s3_list(const s3_place *p, bool deep, int most, s3_entries *out)
{
    char *prefix = mem_printf("%s%s", p->key, *p->key ? "/" : ""), *token = NULL;
    manta_status st = MANTA_OK;

    for (int page = 0; page < PAGES && !st; page++) {
        char *query = list_query(prefix, deep, most, token);
        s3_call c = {.doing = "listing", .method = "GET", .bucket = p->bucket, .key = "", .query = query};
        mem_free(token);
        token = NULL;
        st = s3_call_one(&c);
        if (!st) st = s3_parse_list(buf_text(&c.http.text), c.http.text.n, strlen(prefix), out, &token);
        s3_call_release(&c);
        mem_free(query);
        if (!token || most) break;
        if (!st && (page + 1 == PAGES || out->n > ENTRIES))
            st = manta_fail(MANTA_EINVAL,
                            "listing s3://%s/%s: the list has no end after %zu keys in %d answers", p->bucket,
                            p->key, out->n, page + 1);
    }
    mem_free(token);
    mem_free(prefix);
    return st;
}
