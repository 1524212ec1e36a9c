/* tfrecord.c - numbered records out of TFRecord files.
 *
 *   files    | a.tfrecord | b.tfrecord |  plain: a path; packed: unpacked bytes
 *   index    | {file 0, at 12, n 40} | {file 0, at 68, n 40} | ... |
 *
 * A reader of plain files holds a window, the bytes that its last call to the
 * system brought. Reading on where the last record ended fetches a whole
 * window; jumping about fetches just the record. */
#include "format/tfrecord/tfrecord.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libdeflate.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "format/codec/gzip.h"
#include "format/codec/limit.h"
#include "format/codec/input.h"
#include "format/codec/record.h"
#include "format/codec/sizes.h"
#include "os/sys.h"

/* A protobuf message ends here, so no writer makes longer ones. */
#define MAX_RECORD ((uint64_t)INT32_MAX)

typedef struct source_file {
    char *path;
    uint64_t size; /* of what the index speaks of: the file, or the unpacked bytes */
    const uint8_t *bytes; /* NULL: read from the file */
    void *owned; /* behind bytes, or NULL */
} source_file;

typedef struct place {
    uint64_t at; /* of the data */
    uint32_t n, file;
} place;

struct tfrecord {
    VEC(source_file) files;
    place *index;
    size_t n, cap;
};

struct tfrecord_reader {
    const tfrecord *t;
    struct {
        int fd; /* -1: free */
        uint32_t file;
    } open[TFRECORD_OPEN_FILES];
    int next_open;
    uint8_t *window;
    size_t window_cap, window_n;
    uint64_t window_at;
    uint32_t window_file;
};

static manta_status open_path(const char *path, int *out)
{
    int fd;

    do fd = os->open(path, O_RDONLY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return file_fail(errno, "opening", path);
    *out = fd;
    return MANTA_OK;
}

/* Up to n bytes at `at`; fewer only where the file ends. */
static manta_status read_at(int fd, const char *path, uint64_t at, uint8_t *to, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        ssize_t k = os->pread(fd, to + *got, n - *got, (off_t)(at + *got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return file_fail(errno, "reading", path);
        if (k == 0) break;
        *got += (size_t)k;
    }
    return MANTA_OK;
}

/* ---- the index ------------------------------------------------------------------------ */

static manta_status add_place(tfrecord *t, const source_file *f, uint64_t at, uint64_t n)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        void *more = NULL;
        TRY(mem_try_array((int64_t)cap, sizeof *t->index, "the places of TFRecord records", &more));
        if (t->n) memcpy(more, t->index, t->n * sizeof *t->index);
        mem_try_free(t->index);
        t->index = more;
        t->cap = cap;
    }
    t->index[t->n++] = (place){.at = at, .n = (uint32_t)n, .file = (uint32_t)(f - t->files.at)};
    return MANTA_OK;
}

static manta_status cut_off(const source_file *f, uint64_t at, uint64_t n)
{
    return manta_fail(MANTA_ECORRUPT,
                      "%s: the record at offset %" PRIu64 " is cut off, expected %" PRIu64
                      " bytes and the file ends at %" PRIu64,
                      f->path, at, n, f->size);
}

/* Believes a record's head, or says what is wrong; *next is where the one after it begins. */
static manta_status check_record_head(tfrecord *t, const source_file *f, uint64_t at, const uint8_t *head,
                                      uint64_t *next)
{
    uint64_t n, left = f->size - at - RECORD_HEAD;

    if (!record_head(head, &n)) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the length of the record at offset %" PRIu64 " does not have its checksum",
                          f->path, at);
    }
    if (left < RECORD_FOOT || n > left - RECORD_FOOT) {
        return cut_off(f, at, n > UINT64_MAX - 16 ? n : n + RECORD_HEAD + RECORD_FOOT);
    }
    if (n > MAX_RECORD) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the record at offset %" PRIu64 " has %" PRIu64 " bytes, more than 2 GiB",
                          f->path, at, n);
    }
    *next = at + RECORD_HEAD + n + RECORD_FOOT;
    return add_place(t, f, at + RECORD_HEAD, n);
}

static manta_status index_bytes(tfrecord *t, const source_file *f)
{
    for (uint64_t at = 0; at < f->size;) {
        if (f->size - at < RECORD_HEAD) return cut_off(f, at, RECORD_HEAD);
        TRY(check_record_head(t, f, at, f->bytes + at, &at));
    }
    return MANTA_OK;
}

static manta_status index_file(tfrecord *t, const source_file *f, int fd)
{
    uint8_t *chunk = mem_try_raw(TFRECORD_SCAN);
    uint64_t from = 0, next = 0;
    size_t got = 0, want = TFRECORD_SCAN;
    manta_status st = chunk ? MANTA_OK : manta_fail(MANTA_ENOMEM, "%s: no memory to read into", f->path);

    for (uint64_t at = 0; !st && at < f->size; at = next) {
        if (f->size - at < RECORD_HEAD) {
            st = cut_off(f, at, RECORD_HEAD);
            break;
        }
        if (at < from || at + RECORD_HEAD > from + got) {
            from = at;
            if ((st = read_at(fd, f->path, from, chunk, want, &got))) break;
            if (got < RECORD_HEAD) {
                st = cut_off(f, at, RECORD_HEAD);
                break;
            }
        }
        st = check_record_head(t, f, at, chunk + (at - from), &next);
        if (!st) want = next - at > TFRECORD_SPARSE ? RECORD_HEAD : TFRECORD_SCAN;
    }
    mem_try_free(chunk);
    return st;
}

/* ---- packed files --------------------------------------------------------------------- */

static bool is_zlib(const uint8_t *p, size_t n)
{
    return n >= 2 && (p[0] & 0x0f) == 8 && p[0] >> 4 <= 7 && (p[0] << 8 | p[1]) % 31 == 0;
}

/* A gzip file of one member says its size in its last bytes: when that is the
 * truth, libdeflate unpacks it in one go. */
static bool unpack_at_once(const input *in, uint8_t **out, size_t *n)
{
    struct libdeflate_decompressor *d;
    const uint8_t *end = in->data + in->size;
    size_t used = 0, claim;
    enum libdeflate_result r = LIBDEFLATE_BAD_DATA;

    if (!gzip_is(in->data, in->size) || in->size < 18) return false;
    claim = (size_t)end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 | (size_t)end[-1] << 24;
    if (claim / GZIP_MAX_RATIO > in->size || claim > limit_most(in->size)) return false;
    uint8_t *to = mem_try_raw(claim ? claim : 1);
    d = libdeflate_alloc_decompressor();
    if (to && d) r = libdeflate_gzip_decompress_ex(d, in->data, in->size, to, claim, &used, NULL);
    libdeflate_free_decompressor(d);
    if (r == LIBDEFLATE_SUCCESS && used == in->size) {
        *out = to;
        *n = claim;
        return true;
    }
    mem_try_free(to);
    return false;
}

static manta_status grow_unpacked(const input *in, uint8_t **to, size_t *cap)
{
    size_t bigger = *cap ? 2 * *cap : in->size < 4096 ? 16384 : 4 * in->size;
    uint8_t *more = mem_try_raw(bigger);

    if (!more)
        return manta_fail(MANTA_ENOMEM, "%s: no memory to unpack it, %zu bytes so far", in->path, *cap);
    if (*cap) memcpy(more, *to, *cap);
    mem_try_free(*to);
    *to = more;
    *cap = bigger;
    return MANTA_OK;
}

/* Piece by piece, without believing any size: gzip members one after the other, or one zlib stream. */
static manta_status unpack_file(const input *in, uint8_t **out, size_t *n)
{
    z_stream z = {0};
    uint8_t *to = NULL;
    size_t cap = 0, done = 0, at = 0;
    uint64_t most = limit_most(in->size);
    int r = Z_OK;
    manta_status st = MANTA_OK;

    if (inflateInit2(&z, 47) != Z_OK) return manta_fail(MANTA_ENOMEM, "%s: zlib has no memory", in->path);
    while (r != Z_STREAM_END) {
        if (done == cap && (st = grow_unpacked(in, &to, &cap))) goto out;
        size_t in_now = in->size - at < 1u << 30 ? in->size - at : 1u << 30;
        size_t out_now = cap - done < 1u << 30 ? cap - done : 1u << 30;
        z.next_in = in->data + at;
        z.avail_in = (uInt)in_now;
        z.next_out = to + done;
        z.avail_out = (uInt)out_now;
        r = inflate(&z, Z_NO_FLUSH);
        at += in_now - z.avail_in;
        done += out_now - z.avail_out;
        if (done > most && (st = limit_unpacked(in->path, in->size, done))) goto out;
        if (r == Z_STREAM_END && at < in->size && gzip_is(in->data + at, in->size - at)) r = inflateReset(&z);
        if (r == Z_STREAM_END || (r == Z_OK && (at < in->size || done == cap))) continue;
        st = manta_fail(MANTA_ECORRUPT, "%s: the packed data is %s at offset %zu", in->path,
                        r == Z_OK || r == Z_BUF_ERROR ? "cut off" : "damaged", at);
        goto out;
    }
    if (at < in->size) {
        st = manta_fail(MANTA_ECORRUPT, "%s: %zu bytes follow the packed data at offset %zu", in->path,
                        in->size - at, at);
        goto out;
    }
    *out = to;
    *n = done;
    to = NULL;
out:
    inflateEnd(&z);
    mem_try_free(to);
    return st;
}

static manta_status add_bytes(tfrecord *t, source_file *f, const input *in)
{
    uint64_t n;
    bool plain = in->size >= RECORD_HEAD && record_head(in->data, &n);

    f->bytes = in->data;
    f->size = in->size;
    if (!plain && (gzip_is(in->data, in->size) || is_zlib(in->data, in->size))) {
        uint8_t *bytes = NULL;
        size_t size = 0;
        if (!unpack_at_once(in, &bytes, &size)) TRY(unpack_file(in, &bytes, &size));
        f->owned = bytes;
        f->bytes = bytes;
        f->size = size;
    }
    return index_bytes(t, f);
}

/* ---- opening -------------------------------------------------------------------------- */

static manta_status add_packed(tfrecord *t, source_file *f)
{
    input in = {0};

    TRY(input_read(f->path, &in));
    manta_status st = add_bytes(t, f, &in);
    if (!f->owned) f->bytes = NULL; /* not packed after all; the sentence is said */
    input_release(&in);
    return st;
}

static manta_status add_file(tfrecord *t, const char *path)
{
    uint8_t head[RECORD_HEAD];
    file_info info;
    uint64_t n;
    size_t got;
    int fd = -1;

    TRY(file_stat(path, &info));
    if (!info.is_file) return manta_fail(MANTA_EINVAL, "%s: this is no file, expected TFRecords", path);
    vec_push(&t->files, (source_file){.path = mem_strdup(path), .size = info.size});
    source_file *f = &vec_last(&t->files);
    TRY(open_path(path, &fd));
    manta_status st = read_at(fd, path, 0, head, sizeof head, &got);
    if (st) goto out;
    bool plain = got == sizeof head && record_head(head, &n);
    st = !plain && (gzip_is(head, got) || is_zlib(head, got)) ? add_packed(t, f) : index_file(t, f, fd);
out:
    os->close(fd);
    return st;
}

manta_status tfrecord_open(size_t n, char *const *paths, tfrecord **out)
{
    tfrecord *t = mem_new(sizeof *t);
    manta_status st = MANTA_OK;

    for (size_t i = 0; i < n && !st; i++) st = add_file(t, paths[i]);
    if (st) {
        tfrecord_free(t);
        return st;
    }
    *out = t;
    return MANTA_OK;
}

manta_status tfrecord_of_bytes(const char *name, const uint8_t *data, size_t size, tfrecord **out)
{
    tfrecord *t = mem_new(sizeof *t);
    input in = {.path = (char *)(uintptr_t)name, .data = (uint8_t *)(uintptr_t)data, .size = size};

    vec_push(&t->files, (source_file){.path = mem_strdup(name)});
    manta_status st = add_bytes(t, t->files.at, &in);
    if (st) {
        tfrecord_free(t);
        return st;
    }
    *out = t;
    return MANTA_OK;
}

void tfrecord_free(tfrecord *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->files.n; i++) {
        mem_free(t->files.at[i].path);
        mem_try_free(t->files.at[i].owned);
    }
    vec_release(&t->files);
    mem_try_free(t->index);
    mem_free(t);
}

int64_t tfrecord_count(const tfrecord *t)
{
    return (int64_t)t->n;
}

char *tfrecord_place(const tfrecord *t, int64_t i, char *text, size_t size)
{
    const place *p = &t->index[i];
    int64_t first = i;

    while (first > 0 && t->index[first - 1].file == p->file) first--;
    snprintf(text, size, "%s: record %lld at offset %" PRIu64, t->files.at[p->file].path,
             (long long)(i - first), p->at - RECORD_HEAD);
    return text;
}

/* ---- reading -------------------------------------------------------------------------- */

tfrecord_reader *tfrecord_reader_new(const tfrecord *t)
{
    tfrecord_reader *r = mem_new(sizeof *r);

    r->t = t;
    for (int i = 0; i < TFRECORD_OPEN_FILES; i++) r->open[i].fd = -1;
    return r;
}

void tfrecord_reader_free(tfrecord_reader *r)
{
    if (!r) return;
    for (int i = 0; i < TFRECORD_OPEN_FILES; i++) {
        if (r->open[i].fd >= 0) os->close(r->open[i].fd);
    }
    mem_try_free(r->window);
    mem_free(r);
}

static manta_status file_of(tfrecord_reader *r, uint32_t file, int *fd)
{
    int i = r->next_open;

    for (int k = 0; k < TFRECORD_OPEN_FILES; k++) {
        if (r->open[k].fd < 0 || r->open[k].file != file) continue;
        *fd = r->open[k].fd;
        return MANTA_OK;
    }
    if (r->open[i].fd >= 0) os->close(r->open[i].fd);
    r->open[i].fd = -1;
    TRY(open_path(r->t->files.at[file].path, fd));
    r->open[i].fd = *fd;
    r->open[i].file = file;
    r->next_open = (i + 1) % TFRECORD_OPEN_FILES;
    return MANTA_OK;
}

static bool in_window(const tfrecord_reader *r, const place *p, size_t need)
{
    return r->window_n && r->window_file == p->file && p->at >= r->window_at &&
           p->at + need <= r->window_at + r->window_n;
}

/* Brings record i into the window. */
static manta_status fill_window(tfrecord_reader *r, int64_t i, size_t need)
{
    const place *p = &r->t->index[i];
    const source_file *f = &r->t->files.at[p->file];
    bool onward = r->window_n && r->window_file == p->file && p->at >= r->window_at &&
                  p->at <= r->window_at + r->window_n + RECORD_HEAD;
    size_t want = onward || i == 0 ? TFRECORD_WINDOW : need;
    int fd = -1;

    if (want < need) want = need;
    if (want > f->size - p->at) want = (size_t)(f->size - p->at);
    if (want > r->window_cap) {
        uint8_t *more = mem_try_raw(want > TFRECORD_WINDOW ? want : TFRECORD_WINDOW);
        if (!more)
            return manta_fail(MANTA_ENOMEM, "%s: no memory for a record of %" PRIu32 " bytes", f->path, p->n);
        mem_try_free(r->window);
        r->window = more;
        r->window_cap = want > TFRECORD_WINDOW ? want : TFRECORD_WINDOW;
    }
    r->window_n = 0; /* what fails leaves none */
    TRY(file_of(r, p->file, &fd));
    size_t got;
    TRY(read_at(fd, f->path, p->at, r->window, want, &got));
    if (got < need) {
        return manta_fail(MANTA_ECORRUPT, "%s: the file was %" PRIu64 " bytes long and now ends at %" PRIu64,
                          f->path, f->size, p->at + got);
    }
    r->window_n = got;
    r->window_at = p->at;
    r->window_file = p->file;
    return MANTA_OK;
}

manta_status tfrecord_read(tfrecord_reader *r, int64_t i, const uint8_t **data, size_t *n)
{
    const place *p = &r->t->index[i];
    const uint8_t *bytes = r->t->files.at[p->file].bytes, *at;
    size_t need = (size_t)p->n + RECORD_FOOT;

    if (!bytes && !in_window(r, p, need)) TRY(fill_window(r, i, need));
    at = bytes ? bytes + p->at : r->window + (p->at - r->window_at);
    if (!record_whole(at, p->n)) {
        char text[512];
        return manta_fail(MANTA_ECORRUPT, "%s does not have its checksum",
                          tfrecord_place(r->t, i, text, sizeof text));
    }
    *data = at;
    *n = p->n;
    return MANTA_OK;
}

/* ---- writing -------------------------------------------------------------------------- */

struct tfrecord_writer {
    char *path;
    file_writer *w;
    bool packed;
    z_stream z;
    buf record;
    uint8_t out[1 << 15];
};

manta_status tfrecord_writer_open(const char *path, tfrecord_packing p, tfrecord_writer **out)
{
    tfrecord_writer *w = mem_new(sizeof *w);
    manta_status st;

    w->path = mem_strdup(path);
    if (p != TFRECORD_PLAIN) {
        if (deflateInit2(&w->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, p == TFRECORD_GZIP ? 31 : 15, 8,
                         Z_DEFAULT_STRATEGY) != Z_OK) {
            st = manta_fail(MANTA_ENOMEM, "%s: zlib has no memory", path);
            goto out;
        }
        w->packed = true;
    }
    if ((st = file_writer_open(path, &w->w))) goto out;
    *out = w;
    w = NULL;
out:
    tfrecord_writer_free(w);
    return st;
}

static manta_status pack_bytes(tfrecord_writer *w, const void *data, size_t n, int flush)
{
    int r;

    w->z.next_in = (Bytef *)(uintptr_t)data;
    w->z.avail_in = (uInt)n; /* a record is at most 2 GiB */
    do {
        w->z.next_out = w->out;
        w->z.avail_out = sizeof w->out;
        r = deflate(&w->z, flush);
        TRY(file_writer_write(w->w, w->out, sizeof w->out - w->z.avail_out));
    } while (w->z.avail_out == 0 || (flush == Z_FINISH && r != Z_STREAM_END));
    return MANTA_OK;
}

manta_status tfrecord_writer_add(tfrecord_writer *w, const void *data, size_t n)
{
    if (n > MAX_RECORD)
        return manta_fail(MANTA_EINVAL, "%s: the record has %zu bytes, expected at most 2 GiB", w->path, n);
    buf_cut(&w->record, 0);
    TRY(buf_try_reserve(&w->record, n + RECORD_HEAD + RECORD_FOOT, "a record"));
    record_add(&w->record, data, n);
    if (w->packed) return pack_bytes(w, w->record.at, w->record.n, Z_NO_FLUSH);
    return file_writer_write(w->w, w->record.at, w->record.n);
}

manta_status tfrecord_writer_commit(tfrecord_writer *w)
{
    if (w->packed) TRY(pack_bytes(w, NULL, 0, Z_FINISH));
    return file_writer_commit(w->w);
}

void tfrecord_writer_free(tfrecord_writer *w)
{
    if (!w) return;
    if (w->packed) deflateEnd(&w->z);
    file_writer_free(w->w);
    buf_release(&w->record);
    mem_free(w->path);
    mem_free(w);
}
