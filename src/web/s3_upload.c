/* s3_upload.c - see s3_upload.h.
 *
 *   write ──▶ S3_TOGETHER parts of memory ──full──▶ all of them side by side ──▶ server
 *   finish    ≤ one part: PUT.  more: the rest as parts, then their list */
#include "web/s3_upload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "web/s3_call.h"
#include "web/sigv4.h"
#include "web/xml.h"

enum { PART = 8 << 20, PARTS_MOST = 9000, ABORTS = 1000, QUERY = 1200 };

struct s3_upload {
    s3_place place;
    size_t part; /* bytes of one part */
    char *room; /* S3_TOGETHER of them */
    size_t n; /* bytes there */
    uint64_t all; /* bytes that have come */
    char *id; /* of the upload in parts, encoded; NULL: not begun */
    VEC(char *) etags;
};

size_t s3_part_size(uint64_t expected)
{
    uint64_t part = (expected / PARTS_MOST + (1 << 20) - 1) & ~(uint64_t)((1 << 20) - 1);

    return part < PART ? PART : (size_t)part;
}

manta_status s3_upload_new(const s3_place *p, uint64_t expected, s3_upload **out)
{
    s3_upload *u = mem_new(sizeof *u);

    u->part = s3_part_size(expected);
    if (!(u->room = mem_try_raw(u->part * S3_TOGETHER))) {
        mem_free(u);
        return manta_fail(MANTA_ENOMEM, "writing s3://%s/%s: there is no memory for %zu bytes", p->bucket,
                          p->key, s3_part_size(expected) * S3_TOGETHER);
    }
    u->place = (s3_place){mem_strdup(p->bucket), mem_strdup(p->key)};
    *out = u;
    return MANTA_OK;
}

static s3_call call_of(const s3_place *p, const char *doing, const char *method, const char *query)
{
    return (s3_call){.doing = doing, .method = method, .bucket = p->bucket, .key = p->key, .query = query};
}

/* ---- parts ---- */

static manta_status begin_parts(s3_upload *u)
{
    s3_call c = call_of(&u->place, "beginning to write", "POST", "uploads=");
    manta_status st = s3_call_one(&c);
    char *id = st ? NULL : xml_text((xml_span){buf_text(&c.http.text), c.http.text.n}, "UploadId");
    buf encoded = {0};

    if (!st && (!id || !*id || strlen(id) > QUERY / 4))
        st = manta_fail(MANTA_EIO, "beginning to write s3://%s/%s: the answer has no UploadId",
                        u->place.bucket, u->place.key);
    if (!st) {
        sigv4_encode(&encoded, id, strlen(id), false);
        u->id = buf_take(&encoded);
    }
    mem_free(id);
    s3_call_release(&c);
    return st;
}

/* Sends what lies in memory as parts, side by side. */
static manta_status send_parts(s3_upload *u)
{
    s3_call calls[S3_TOGETHER];
    char query[S3_TOGETHER][QUERY];
    int n = 0;
    manta_status st;

    if (!u->id) TRY(begin_parts(u));
    for (size_t at = 0; at < u->n; at += u->part, n++) {
        snprintf(query[n], sizeof query[n], "partNumber=%zu&uploadId=%s", u->etags.n + (size_t)n + 1, u->id);
        calls[n] = call_of(&u->place, "writing a part of", "PUT", query[n]);
        calls[n].body = u->room + at;
        calls[n].size = u->n - at < u->part ? u->n - at : u->part;
    }
    st = s3_call_all(calls, n);
    for (int i = 0; i < n; i++) {
        if (!st) st = s3_call_status(&calls[i]);
        if (!st && !calls[i].http.etag[0])
            st = manta_fail(MANTA_EIO, "writing a part of s3://%s/%s: the answer has no ETag",
                            u->place.bucket, u->place.key);
        if (!st) vec_push(&u->etags, mem_strdup(calls[i].http.etag));
        s3_call_release(&calls[i]);
    }
    u->n = 0;
    return st;
}

manta_status s3_upload_write(s3_upload *u, const void *data, size_t n)
{
    while (n) {
        size_t free = u->part * S3_TOGETHER - u->n, some = n < free ? n : free;
        if (!free) {
            TRY(send_parts(u));
            continue;
        }
        memcpy(u->room + u->n, data, some);
        u->n += some;
        u->all += some;
        data = (const char *)data + some;
        n -= some;
    }
    return MANTA_OK;
}

/* ---- the end ---- */

/* The answer may begin with 200 and say in its text that it failed. */
static manta_status check_finish(const s3_upload *u, const s3_call *c)
{
    xml_span all = {buf_text(&c->http.text), c->http.text.n}, inner;
    char *code;
    manta_status st = MANTA_OK;

    if (xml_next(&(xml_span){all.at, all.n}, "CompleteMultipartUploadResult", &inner)) return MANTA_OK;
    code = xml_text(all, "Code");
    for (char *p = code; p && *p; p++)
        if ((unsigned char)*p < ' ') *p = '?';
    st = manta_fail(MANTA_EIO, "finishing s3://%s/%s: the server took the parts and then answered '%.60s'",
                    u->place.bucket, u->place.key, code ? code : "");
    mem_free(code);
    return st;
}

static manta_status finish_parts(s3_upload *u)
{
    char *query = mem_printf("uploadId=%s", u->id);
    s3_call c = call_of(&u->place, "finishing", "POST", query);
    s3_object there;
    buf text = {0};
    manta_status st;

    buf_add_text(&text, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < u->etags.n; i++)
        buf_printf(&text, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1, u->etags.at[i]);
    buf_add_text(&text, "</CompleteMultipartUpload>");
    c.body = text.at;
    c.size = text.n;
    st = s3_call_one(&c);
    if (!st) st = check_finish(u, &c);
    /* A repeated one is told that there is no such upload when the first went well. */
    if (st == MANTA_ENOENT && !s3_look(&u->place, &there) && there.size == u->all) st = MANTA_OK;
    if (!st) {
        mem_free(u->id);
        u->id = NULL;
    }
    s3_call_release(&c);
    buf_release(&text);
    mem_free(query);
    return st;
}

manta_status s3_upload_finish(s3_upload *u)
{
    if (!u->id && u->n <= u->part) return s3_put(&u->place, u->room, u->n, (s3_if){0}, NULL);
    if (u->n) TRY(send_parts(u));
    return finish_parts(u);
}

static manta_status abort_upload(const s3_place *p, const char *id)
{
    char *query = mem_printf("uploadId=%s", id);
    s3_call c = call_of(p, "giving up", "DELETE", query);
    manta_status st = s3_call_one(&c);

    s3_call_release(&c);
    mem_free(query);
    return st == MANTA_ENOENT ? MANTA_OK : st;
}

void s3_upload_free(s3_upload *u)
{
    manta_error why;

    if (!u) return;
    manta_error_get(&why);
    if (u->id && abort_upload(&u->place, u->id))
        log_warn("parts of an upload stay in the bucket", LOG_STR("key", u->place.key),
                 LOG_STR("why", manta_error_text()));
    if (why.code) (void)!manta_error_raise(&why); /* the sentence of the failure stays */
    for (size_t i = 0; i < u->etags.n; i++) mem_free(u->etags.at[i]);
    vec_release(&u->etags);
    mem_try_free(u->room);
    mem_free(u->id);
    s3_place_release(&u->place);
    mem_free(u);
}

/* ---- what others left ---- */

static manta_status abort_listed(const s3_place *p, xml_span all)
{
    xml_span rest = all, inner;
    manta_status st = MANTA_OK;

    while (!st && xml_next(&rest, "Upload", &inner)) {
        char *key = xml_text(inner, "Key"), *id = xml_text(inner, "UploadId");
        size_t n = strlen(p->key);
        buf encoded = {0};
        if (key && id && xml_decode_url(key, true) && !strncmp(key, p->key, n) &&
            (key[n] == '/' || !key[n])) {
            sigv4_encode(&encoded, id, strlen(id), false);
            st = abort_upload(&(s3_place){p->bucket, key}, buf_text(&encoded));
        }
        buf_release(&encoded);
        mem_free(key);
        mem_free(id);
    }
    return st;
}

manta_status s3_abort_uploads(const s3_place *p)
{
    buf query = {0};
    s3_call c;
    manta_status st;

    buf_printf(&query, "uploads=&encoding-type=url&max-uploads=%d&prefix=", ABORTS);
    sigv4_encode(&query, p->key, strlen(p->key), false);
    c = (s3_call){.doing = "looking for what was not finished in",
                  .method = "GET",
                  .bucket = p->bucket,
                  .key = "",
                  .query = buf_text(&query)};
    st = s3_call_one(&c);
    if (!st) st = abort_listed(p, (xml_span){buf_text(&c.http.text), c.http.text.n});
    s3_call_release(&c);
    buf_release(&query);
    return st;
}
