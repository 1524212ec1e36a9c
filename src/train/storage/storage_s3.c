/* storage_s3.c - see storage_s3.h. */
#include "train/storage/storage_s3.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/sys.h"
#include "train/storage/s3_key.h"
#include "train/storage/s3_lease.h"
#include "train/storage/s3_log.h"
#include "web/s3_upload.h"

enum { PIECE = 1 << 20 };

/* ---- where ---- */

manta_status storage_s3_place(const char *path, s3_place *out)
{
    char *key;

    TRY(s3_place_parse(path, out));
    key = s3_key_settle(out->key);
    mem_free(out->key);
    out->key = key;
    return MANTA_OK;
}

/* A place with the same bucket and another key, which it takes. */
static s3_place place_beside(const s3_place *p, char *key)
{
    return (s3_place){mem_strdup(p->bucket), key};
}

static s3_place mark_of(const s3_place *p)
{
    return place_beside(p, mem_printf("%s/", p->key));
}

static s3_place place_inside(const s3_place *p, const char *name)
{
    return place_beside(p, mem_printf("%s%s%s", p->key, *p->key ? "/" : "", name));
}

/* The folder that an unpublished one will be. */
static s3_place place_settled(const s3_place *temp)
{
    return place_beside(temp, s3_key_published(temp->key));
}

static bool has_manifest(const s3_place *folder, manta_status *st)
{
    s3_place m = place_inside(folder, S3_KEY_MANIFEST);
    s3_object about;
    manta_error before;

    manta_error_get(&before);
    *st = s3_look(&m, &about);
    s3_place_release(&m);
    if (*st != MANTA_ENOENT) return !*st;
    if (before.code) (void)!manta_error_raise(&before);
    *st = MANTA_OK;
    return false;
}

/* ---- folders ---- */

static manta_status put_mark(const s3_place *p, s3_if when)
{
    s3_place mark = mark_of(p);
    char *nonce = s3_lease_nonce();
    manta_status st = s3_put(&mark, nonce, strlen(nonce), when, NULL);

    mem_free(nonce);
    s3_place_release(&mark);
    return st;
}

/* A bucket is made by its owner; here it is only looked at. */
static manta_status bucket_make(void *ctx, const char *path)
{
    s3_place p = {0};
    s3_entries none = {0};
    manta_status st;

    (void)ctx;
    TRY(storage_s3_place(path, &p));
    st = *p.key ? put_mark(&p, (s3_if){0}) : s3_list(&p, false, 1, &none);
    s3_entries_release(&none);
    s3_place_release(&p);
    return st;
}

/* Whether something but its mark lies in a folder: files of others, who have put no mark. */
static manta_status check_empty(const char *path, const s3_place *p)
{
    s3_entries some = {0};
    manta_status st = s3_list(p, true, 2, &some);

    for (size_t i = 0; i < some.n && !st; i++)
        if (*some.at[i].name) st = manta_fail(MANTA_EEXIST, "creating %s: there are files in it", path);
    s3_entries_release(&some);
    return st;
}

static manta_status bucket_claim(void *ctx, const char *path)
{
    s3_place p = {0};
    manta_status st;

    (void)ctx;
    TRY(s3_lease_probe(path));
    TRY(s3_lease_check(path));
    TRY(storage_s3_place(path, &p));
    st = put_mark(&p, (s3_if){.absent = !s3_lease_unlocked()});
    if (!st && !s3_key_is_litter(p.key)) st = check_empty(path, &p);
    s3_place_release(&p);
    return st;
}

/* ---- files that come ---- */

typedef struct coming {
    char *path;
    uint64_t expected;
    s3_upload *upload; /* NULL: nothing has come */
} coming;

static manta_status coming_reserve(void *self, uint64_t size)
{
    coming *c = self;

    if (!c->upload) c->expected = size;
    return MANTA_OK;
}

static manta_status begin_upload(coming *c)
{
    s3_place p = {0};
    manta_status st;

    if (c->upload) return MANTA_OK;
    TRY(storage_s3_place(c->path, &p));
    st = s3_upload_new(&p, c->expected, &c->upload);
    s3_place_release(&p);
    return st;
}

static manta_status coming_write(void *self, const void *data, size_t n)
{
    coming *c = self;

    TRY(begin_upload(c));
    return s3_upload_write(c->upload, data, n);
}

static manta_status coming_commit(void *self)
{
    coming *c = self;

    TRY(begin_upload(c));
    TRY(s3_lease_check(c->path));
    return s3_upload_finish(c->upload);
}

static void coming_free(void *self)
{
    coming *c = self;

    s3_upload_free(c->upload);
    mem_free(c->path);
    mem_free(c);
}

static manta_status bucket_create(void *ctx, const char *path, file_writer **out)
{
    static const file_sink sink = {coming_reserve, coming_write, coming_commit, coming_free};
    coming *c;

    (void)ctx;
    TRY(s3_lease_check(path));
    c = mem_new(sizeof *c);
    c->path = mem_strdup(path);
    return file_writer_to(path, &sink, c, out);
}

/* Copies a file of the file system. */
static manta_status send_file(const char *from, file_writer *w)
{
    char *piece = mem_new(PIECE);
    manta_status st = MANTA_OK;
    int fd = os->open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);

    if (fd < 0) st = file_fail(errno, "opening", from);
    while (!st) {
        ssize_t n = os->read(fd, piece, PIECE);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) st = file_fail(errno, "reading", from);
        if (n <= 0) break;
        st = file_writer_write(w, piece, (size_t)n);
    }
    if (fd >= 0) os->close(fd);
    mem_free(piece);
    return st;
}

static manta_status bucket_take(void *ctx, const char *from, const char *path, file_sum *sum)
{
    file_writer *w = NULL;
    file_info info;
    manta_status st;

    TRY(file_look(from, &info));
    TRY(bucket_create(ctx, path, &w));
    st = file_writer_reserve(w, info.size);
    if (!st) st = send_file(from, w);
    if (!st) st = file_writer_commit(w);
    if (!st && sum) *sum = file_writer_sum(w);
    file_writer_free(w);
    return st ? st : file_remove(from);
}

/* ---- a file that grows ---- */

static manta_status bucket_open_log(void *ctx, const char *path, void **log)
{
    s3_log *l = NULL;

    (void)ctx;
    TRY(s3_log_open(path, &l));
    *log = l;
    return MANTA_OK;
}

static manta_status bucket_add(void *log, const void *data, size_t n)
{
    return s3_log_add(log, data, n);
}

static manta_status bucket_sync_log(void *log)
{
    return s3_log_sync(log);
}

static void bucket_close_log(void *log)
{
    s3_log_close(log);
}

/* ---- reading ---- */

typedef struct reading {
    const char *path;
    size_t max_size, n;
    char *to;
    file_sum sum;
} reading;

static manta_status keep_piece(void *ctx, const s3_object *about, const void *data, size_t n)
{
    reading *r = ctx;

    if (about->size > r->max_size)
        return manta_fail(MANTA_EINVAL, "reading %s: it has %llu bytes, expected at most %zu", r->path,
                          (unsigned long long)about->size, r->max_size);
    if (!r->to && !(r->to = mem_try_raw((size_t)about->size + 1)))
        return manta_fail(MANTA_ENOMEM, "reading %s: there is no memory for %llu bytes", r->path,
                          (unsigned long long)about->size);
    memcpy(r->to + r->n, data, n);
    r->n += n;
    r->to[r->n] = '\0';
    return MANTA_OK;
}

static manta_status bucket_read(void *ctx, const char *path, size_t max_size, void **out, size_t *size)
{
    reading r = {.path = path, .max_size = max_size};
    s3_place p = {0};
    manta_status st;

    (void)ctx;
    TRY(storage_s3_place(path, &p));
    st = s3_stream(&p, keep_piece, &r);
    s3_place_release(&p);
    if (st) {
        mem_try_free(r.to);
        return st;
    }
    *out = r.to;
    *size = r.n;
    return MANTA_OK;
}

static manta_status bucket_read_at(void *ctx, const char *path, uint64_t at, void *to, size_t most, size_t *n)
{
    s3_place p = {0};
    manta_status st;

    (void)ctx;
    *n = 0;
    if (!most) return MANTA_OK;
    TRY(storage_s3_place(path, &p));
    st = s3_get(&p, at, to, most, n, NULL);
    s3_place_release(&p);
    return st;
}

static manta_status sum_piece(void *ctx, const s3_object *about, const void *data, size_t n)
{
    reading *r = ctx;

    (void)about;
    r->sum.crc = crc32c(r->sum.crc, data, n);
    r->sum.size += n;
    return MANTA_OK;
}

static manta_status bucket_sum(void *ctx, const char *path, file_sum *out)
{
    reading r = {.path = path};
    s3_place p = {0};
    manta_status st;

    (void)ctx;
    TRY(storage_s3_place(path, &p));
    st = s3_stream(&p, sum_piece, &r);
    s3_place_release(&p);
    if (!st) *out = r.sum;
    return st;
}

static manta_status bucket_look(void *ctx, const char *path, file_info *out)
{
    s3_place p = {0};
    s3_object about;
    s3_entries some = {0};
    manta_error before;
    manta_status st;

    (void)ctx;
    manta_error_get(&before);
    TRY(storage_s3_place(path, &p));
    st = *p.key ? s3_look(&p, &about) : MANTA_ENOENT;
    if (!st) {
        *out = (file_info){.size = about.size, .is_file = true, .changed_ns = about.changed_ns};
    } else if (st == MANTA_ENOENT && !(st = s3_list(&p, true, 1, &some))) {
        if (some.n || !*p.key) {
            *out = (file_info){.is_folder = true};
            if (before.code) (void)!manta_error_raise(&before); /* a folder is no failure */
        } else {
            st = manta_fail(MANTA_ENOENT, "looking at %s: there is no such object or folder", path);
        }
    }
    s3_entries_release(&some);
    s3_place_release(&p);
    return st;
}

/* ---- listing ---- */

/* Whether a name is that of a folder that is not published: its mark is there, and its
 * manifest is not. */
static manta_status is_hidden(const s3_place *folder, const s3_entries *all, const s3_entry *e, bool *hidden)
{
    manta_status st = MANTA_OK;

    *hidden = false;
    if (!e->is_folder) return MANTA_OK;
    for (size_t i = 0; i < all->n && !st && !*hidden; i++) {
        const char *name = all->at[i].name;
        size_t n = s3_key_stem(name, strlen(name));
        s3_place inner;
        if (!n || strlen(e->name) != n || memcmp(e->name, name + 1, n) != 0) continue;
        inner = place_inside(folder, e->name);
        *hidden = !has_manifest(&inner, &st);
        s3_place_release(&inner);
    }
    return st;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Whether it is a name as a folder has them. Names become paths of this host's (train/run/stage.c), and a
 * server may say what it likes. */
static bool is_name(const char *name)
{
    return !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static manta_status take_names(const s3_place *p, const s3_entries *all, file_names *out)
{
    manta_status st = MANTA_OK;

    for (size_t i = 0; i < all->n && !st; i++) {
        bool hidden = false;
        if (!*all->at[i].name) continue; /* the mark of the folder itself */
        if (!is_name(all->at[i].name)) continue;
        st = is_hidden(p, all, &all->at[i], &hidden);
        if (!st && !hidden) vec_push(out, mem_strdup(all->at[i].name));
    }
    return st;
}

static manta_status bucket_list(void *ctx, const char *path, file_names *out)
{
    s3_place p = {0};
    s3_entries all = {0};
    file_names names = {0};
    manta_status st;

    (void)ctx;
    TRY(storage_s3_place(path, &p));
    st = s3_list(&p, false, 0, &all);
    if (!st && !all.n && *p.key) st = manta_fail(MANTA_ENOENT, "listing %s: there is no such folder", path);
    if (!st) st = take_names(&p, &all, &names);
    if (!st && names.n) qsort(names.at, names.n, sizeof *names.at, by_bytes);
    for (size_t i = 0; i < names.n && !st; i++) {
        if (i && !strcmp(names.at[i], names.at[i - 1])) continue; /* a file and a folder of one name */
        vec_push(out, mem_strdup(names.at[i]));
    }
    file_names_release(&names);
    s3_entries_release(&all);
    s3_place_release(&p);
    return st;
}

/* ---- coming and going ---- */

static manta_status bucket_remove(void *ctx, const char *path)
{
    s3_place p = {0};
    s3_object about;
    manta_status st;

    (void)ctx;
    TRY(s3_lease_check(path));
    TRY(storage_s3_place(path, &p));
    st = s3_look(&p, &about); /* removing what is not there is no failure of S3's */
    if (!st) st = s3_remove(&p);
    s3_place_release(&p);
    return st;
}

/* Removes all below a folder, its mark last. */
static manta_status remove_below(const s3_place *p, size_t *removed)
{
    s3_entries all = {0};
    manta_status st = s3_list(p, true, 0, &all);

    for (size_t i = 0; i < all.n && !st; i++) {
        s3_place inner = place_inside(p, all.at[i].name);
        if (*all.at[i].name) st = s3_remove(&inner);
        s3_place_release(&inner);
    }
    if (!st && all.n) {
        s3_place mark = mark_of(p);
        st = s3_remove(&mark);
        s3_place_release(&mark);
    }
    *removed += all.n;
    s3_entries_release(&all);
    return st;
}

/* An unpublished folder goes with what lies in its last place; one that was published
 * meanwhile keeps that. */
static manta_status remove_litter(const s3_place *p, size_t *removed)
{
    s3_place to = place_settled(p);
    manta_status st;
    bool published = has_manifest(&to, &st);

    if (!st && !published) st = remove_below(&to, removed);
    if (!st && !published && s3_abort_uploads(&to))
        log_debug("parts of uploads may stay", LOG_STR("why", manta_error_text()));
    s3_place_release(&to);
    return st ? st : remove_below(p, removed);
}

static manta_status bucket_remove_tree(void *ctx, const char *path)
{
    s3_place p = {0};
    size_t removed = 0;
    manta_status st;

    (void)ctx;
    TRY(s3_lease_check(path));
    TRY(storage_s3_place(path, &p));
    if (!*p.key) {
        st = manta_fail(MANTA_EINVAL, "removing %s: that is all of the bucket", path);
    } else {
        st = s3_key_is_litter(p.key) ? remove_litter(&p, &removed) : remove_below(&p, &removed);
    }
    if (!st && !removed) st = manta_fail(MANTA_ENOENT, "removing %s: there is no such folder", path);
    s3_place_release(&p);
    return st;
}

/* The manifest appears under its last name: the one step. When no answer came it may be there or
 * not, and who asks next will see. */
static manta_status put_manifest(const s3_place *to, const void *text, size_t n)
{
    s3_place m = place_inside(to, S3_KEY_MANIFEST);
    manta_status st = s3_put(&m, text, n, (s3_if){.absent = !s3_lease_unlocked()}, NULL);
    manta_error why;

    if (st && st != MANTA_EEXIST && st != MANTA_EPERM) {
        manta_error_get(&why);
        st = manta_fail(MANTA_EUNKNOWN, "%.400s", why.text);
    }
    s3_place_release(&m);
    return st;
}

static manta_status bucket_publish(void *ctx, const char *temp, const char *path)
{
    s3_place from = {0}, to = {0};
    char *manifest = mem_printf("%s/" S3_KEY_MANIFEST, temp);
    void *text = NULL;
    size_t n = 0, removed = 0;
    manta_status st = storage_s3_place(temp, &from);

    if (st || (st = storage_s3_place(path, &to))) goto out;
    if ((st = bucket_read(ctx, manifest, SIZE_MAX / 2, &text, &n))) goto out;
    if ((st = s3_lease_check(path))) goto out;
    if ((st = put_manifest(&to, text, n))) goto out;
    if (remove_below(&from, &removed)) /* the next sweep will */
        log_debug("the mark of a published folder stays", LOG_STR("path", temp));
out:
    mem_try_free(text);
    mem_free(manifest);
    s3_place_release(&from);
    s3_place_release(&to);
    return st;
}

static manta_status bucket_withdraw(void *ctx, const char *path)
{
    s3_place p = {0}, mark, manifest;
    size_t removed = 0;
    manta_status st;

    (void)ctx;
    TRY(s3_lease_check(path));
    TRY(storage_s3_place(path, &p));
    mark = place_beside(&p, mem_printf("%.*s.%s.0" S3_KEY_LITTER, (int)(s3_key_last(p.key) - p.key), p.key,
                                       s3_key_last(p.key)));
    manifest = place_inside(&p, S3_KEY_MANIFEST);
    st = put_mark(&mark, (s3_if){0});
    if (!st) st = s3_remove(&manifest); /* the step */
    if (!st) st = remove_below(&p, &removed);
    if (!st) st = remove_below(&mark, &removed);
    s3_place_release(&manifest);
    s3_place_release(&mark);
    s3_place_release(&p);
    return st;
}

/* ---- one at a time ---- */

/* Uploads below a lock that is ours now are of those who had it before, and cost their owner money. */
static void abort_below(const char *path)
{
    char *folder = file_above(path);
    s3_place p = {0};
    manta_status st = storage_s3_place(folder, &p);

    if (!st && *p.key) st = s3_abort_uploads(&p);
    if (st) log_debug("parts of uploads may stay", LOG_STR("why", manta_error_text()));
    s3_place_release(&p);
    mem_free(folder);
}

static manta_status bucket_lock(void *ctx, const char *path, void **held)
{
    s3_lease *l = NULL;

    (void)ctx;
    TRY(s3_lease_take(path, &l));
    if (!s3_lease_unlocked()) abort_below(path);
    *held = l;
    return MANTA_OK;
}

static void bucket_unlock(void *held)
{
    s3_lease_free(held);
}

static int bucket_holder(void *ctx, const char *path)
{
    (void)ctx;
    return s3_lease_holder(path);
}

const storage_ops storage_s3 = {.scheme = "s3",
                                .about = "s3://BUCKET/PREFIX",
                                .make = bucket_make,
                                .claim = bucket_claim,
                                .create = bucket_create,
                                .take = bucket_take,
                                .open_log = bucket_open_log,
                                .add = bucket_add,
                                .sync_log = bucket_sync_log,
                                .close_log = bucket_close_log,
                                .read = bucket_read,
                                .read_at = bucket_read_at,
                                .sum = bucket_sum,
                                .look = bucket_look,
                                .list = bucket_list,
                                .remove = bucket_remove,
                                .remove_tree = bucket_remove_tree,
                                .publish = bucket_publish,
                                .withdraw = bucket_withdraw,
                                .lock = bucket_lock,
                                .unlock = bucket_unlock,
                                .holder = bucket_holder};
