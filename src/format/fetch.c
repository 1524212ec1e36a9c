/* fetch.c - brings datasets into the user's cache folder.
 *
 * A file is received under NAME.part, which survives a cut so that the next
 * attempt goes on at its end (HTTP Range) if there is a checksum to tell that
 * the whole belongs together; when it is whole and its checksum
 * right it becomes NAME by one rename. Two processes that fetch the same file
 * are kept apart by a lock on the part.
 *
 * MANTA_DATA_URL, when set, stands for the folder that the builtin datasets lie in:
 * MANTA_DATA_URL/mnist/train-images-idx3-ubyte.gz. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/suggest.h"
#include "format/builtin_datasets.h"
#include "format/fetch.h"
#include "format/remote.h"
#include "os/file.h"
#include "os/sys.h"
#include "web/curl.h"
#include <manta/data_file.h>
#include <zlib.h>

typedef struct transfer {
    const char *url, *file; /* file: name for sentences and progress */
    int fd; /* the part */
    int64_t have; /* bytes of the part when the transfer began */
    int64_t done; /* bytes of the part now */
    char range[32];
    bool begun; /* the first byte of the answer is here */
    const curl_table *lib;
    CURL *curl;
    manta_progress_fn progress;
    void *user;
    manta_status st; /* why a callback stopped the transfer */
} transfer;

/* ---- receiving ------------------------------------------------------------------------ */

/* A server that knows no ranges answers 200 and sends everything again. */
static manta_status begin_response(transfer *t)
{
    long code = 0;

    t->begun = true;
    t->lib->curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code != 206 && t->have > 0) {
        t->have = t->done = 0;
        if (os->ftruncate(t->fd, 0)) return file_fail(errno, "cutting the part of", t->file);
    }
    if (lseek(t->fd, (off_t)t->done, SEEK_SET) < 0) return file_fail(errno, "writing the part of", t->file);
    return MANTA_OK;
}

static size_t receive_bytes(char *data, size_t size, size_t n, void *ctx)
{
    transfer *t = ctx;
    size_t bytes = size * n, at = 0;

    if (!t->begun && (t->st = begin_response(t))) return 0;
    while (at < bytes) {
        ssize_t k = os->write(t->fd, data + at, bytes - at);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) {
            t->st = file_fail(errno, "writing the part of", t->file);
            return 0;
        }
        at += (size_t)k;
        t->done += k;
    }
    return bytes;
}

static int report_progress(void *ctx, curl_off_t total, curl_off_t now, curl_off_t up, curl_off_t upped)
{
    transfer *t = ctx;

    (void)now;
    (void)up;
    (void)upped;
    if (!t->progress) return 0;
    if (t->progress(t->user, t->file, t->done, total > 0 ? t->have + total : -1)) return 0;
    t->st =
        manta_fail(MANTA_ECANCELLED, "%s: stopped on request after %lld bytes; fetching again goes on there",
                   t->file, (long long)t->done);
    return 1;
}

static manta_status fail_transfer(const transfer *t, CURLcode r, const char *text)
{
    long code = 0;

    if (t->st) return t->st;
    t->lib->curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (r == CURLE_HTTP_RETURNED_ERROR) {
        return manta_fail(code == 404 ? MANTA_ENOENT : MANTA_EIO, "%s: the server answered %ld", t->url,
                          code);
    }
    return manta_fail(r == CURLE_OPERATION_TIMEDOUT ? MANTA_ETIMEDOUT : MANTA_EIO,
                      "%s: %s after %lld bytes; fetching again goes on there", t->url,
                      text[0] ? text : t->lib->curl_easy_strerror(r), (long long)t->done);
}

static void set_options(transfer *t, char *error)
{
    CURL *c = t->curl;

    t->lib->curl_easy_setopt(c, CURLOPT_URL, t->url);
    t->lib->curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    t->lib->curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    t->lib->curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    t->lib->curl_easy_setopt(c, CURLOPT_MAXREDIRS, 5L);
    t->lib->curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    t->lib->curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    t->lib->curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 30L);
    t->lib->curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L); /* a silent server is given up after a minute */
    t->lib->curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, 60L);
    t->lib->curl_easy_setopt(c, CURLOPT_USERAGENT, "manta");
    t->lib->curl_easy_setopt(c, CURLOPT_ERRORBUFFER, error);
    /* CURLOPT_RESUME_FROM would give up on a server that knows no ranges. */
    snprintf(t->range, sizeof t->range, "%lld-", (long long)t->have);
    if (t->have > 0) t->lib->curl_easy_setopt(c, CURLOPT_RANGE, t->range);
    t->lib->curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, receive_bytes);
    t->lib->curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    t->lib->curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, report_progress);
    t->lib->curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    t->lib->curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
}

static manta_status perform_transfer(transfer *t)
{
    char error[CURL_ERROR_SIZE] = "";

    TRY(curl_table_get(&t->lib));
    t->curl = t->lib->curl_easy_init();
    if (!t->curl) return manta_fail(MANTA_ENOMEM, "%s: libcurl could not be started", t->url);
    set_options(t, error);
    CURLcode r = t->lib->curl_easy_perform(t->curl);
    long code = 0;
    t->lib->curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    /* 416: nothing lies behind what we have, so perhaps it is whole; the
     * checksum will tell. */
    bool whole = t->have > 0 && code == 416;
    manta_status st = r == CURLE_OK || whole ? MANTA_OK : fail_transfer(t, r, error);
    t->lib->curl_easy_cleanup(t->curl);
    return st;
}

/* ---- checking ------------------------------------------------------------------------- */

/* The sha256 of a file's bytes, or of what its gzip holds. */
static manta_status digest_file(const char *path, bool unpacked, char text[65])
{
    unsigned char sum[32], block[1 << 16];
    sha256 s;
    /* gzread passes over the bytes of a file that is not gzip. */
    gzFile f = unpacked ? gzopen(path, "rbe") : NULL;
    FILE *raw = unpacked ? NULL : fopen(path, "rbe");
    size_t n = 0;
    int err = Z_OK;

    if (!f && !raw) return file_fail(errno, "reading", path);
    sha256_init(&s);
    do {
        int k = f ? gzread(f, block, sizeof block) : (int)fread(block, 1, sizeof block, raw);
        n = k > 0 ? (size_t)k : 0;
        sha256_add(&s, block, n);
    } while (n > 0);
    bool bad = raw && ferror(raw);
    if (f) {
        gzerror(f, &err);
        int end = gzclose(f); /* Z_BUF_ERROR: the stream was cut off */
        if (err == Z_OK) err = end;
    } else {
        fclose(raw);
    }
    if (bad) return manta_fail(MANTA_EIO, "reading %s failed", path);
    if (err != Z_OK) return manta_fail(MANTA_ECORRUPT, "%s: damaged or cut off gzip data", path);
    sha256_final(&s, sum);
    sha256_text(sum, text);
    return MANTA_OK;
}

static manta_status check_digest(const char *path, const char *name, const char *sha256_wanted, bool unpacked)
{
    char text[65];

    if (!sha256_wanted) return MANTA_OK;
    TRY(digest_file(path, unpacked, text));
    if (strcasecmp(text, sha256_wanted) == 0) return MANTA_OK;
    return manta_fail(MANTA_ECORRUPT, "%s: its sha256 is %s, expected %s", name, text, sha256_wanted);
}

/* ---- one file -------------------------------------------------------------------------- */

typedef struct wanted {
    const char *url;
    const char *dir, *name;
    const char *sha256;
    bool unpacked; /* what the checksum is of */
    manta_progress_fn progress;
    void *user;
} wanted;

static manta_status open_part(const char *part, bool resume, transfer *t)
{
    struct stat sb;

    t->fd = os->open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (t->fd < 0) return file_fail(errno, "opening", part);
    if (flock(t->fd, LOCK_EX | LOCK_NB)) {
        return manta_fail(MANTA_EBUSY, "%s: another process is fetching it", part);
    }
    if (os->fstat(t->fd, &sb)) return file_fail(errno, "looking at", part);
    /* Without a checksum nobody would notice that the two halves are of
     * different files. */
    if (!resume && os->ftruncate(t->fd, 0)) return file_fail(errno, "cutting", part);
    t->have = t->done = resume ? sb.st_size : 0;
    return MANTA_OK;
}

static manta_status commit_part(transfer *t, const char *dir, const char *part, const char *path)
{
    if (os->fsync(t->fd)) return file_fail(errno, "writing", part);
    if (os->rename(part, path)) return file_fail(errno, "renaming", part);
    int d = os->open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (d < 0) return file_fail(errno, "opening", dir);
    int err = os->fsync(d) ? errno : 0;
    os->close(d);
    return err ? file_fail(err, "writing", dir) : MANTA_OK;
}

static manta_status receive_file(const wanted *w, const char *part, const char *path)
{
    transfer t = {.url = w->url, .file = w->name, .fd = -1, .progress = w->progress, .user = w->user};
    manta_status st;

    for (int attempt = 0;; attempt++) {
        if (t.fd >= 0) os->close(t.fd);
        t.begun = false;
        t.st = MANTA_OK;
        if ((st = open_part(part, w->sha256 != NULL, &t))) break;
        bool resumed = t.have > 0;
        if ((st = perform_transfer(&t))) break;
        st = check_digest(part, w->name, w->sha256, w->unpacked);
        if (!st) {
            st = commit_part(&t, w->dir, part, path);
            break;
        }
        /* What a cut left behind may have been of another file: once more from
         * the beginning. What was received whole and is wrong stays wrong. */
        manta_error e;
        manta_error_get(&e);
        if (os->unlink(part) && errno != ENOENT) {
            st = file_fail(errno, "removing", part);
            break;
        }
        if (!resumed || attempt) {
            st = manta_error_raise(&e);
            break;
        }
    }
    if (t.fd >= 0) os->close(t.fd); /* and with it the lock */
    return st;
}

static manta_status fetch_file(const wanted *w)
{
    char *path = mem_printf("%s/%s", w->dir, w->name), *part = mem_printf("%s.part", path);
    file_info info;
    manta_status st = file_mkdirs(w->dir);

    if (st) goto out;
    if (w->sha256 && file_stat(path, &info) == MANTA_OK && info.is_file &&
        check_digest(path, w->name, w->sha256, w->unpacked) == MANTA_OK) {
        goto out; /* it is here already */
    }
    st = receive_file(w, part, path);
out:
    mem_free(path);
    mem_free(part);
    return st;
}

manta_status fetch_to(const char *url, const char *dir, const char *name)
{
    return fetch_file(&(wanted){.url = url, .dir = dir, .name = name});
}

/* ---- sets and URLs ---------------------------------------------------------------------- */

static manta_status fetch_set(const builtin_dataset *set, const char *dir, manta_progress_fn progress,
                              void *user)
{
    const char *base = getenv("MANTA_DATA_URL");
    manta_status st = MANTA_OK;

    for (int i = 0; i < 4 && !st; i++) {
        const builtin_file *f = &set->files[i];
        char *url = base && base[0] ? mem_printf("%s/%s/%s", base, set->name, f->name)
                                    : mem_printf("%s/%s", set->url, f->name);
        wanted w = {.url = url,
                    .dir = dir,
                    .name = f->name,
                    .sha256 = f->sha256,
                    .unpacked = true,
                    .progress = progress,
                    .user = user};
        st = fetch_file(&w);
        mem_free(url);
    }
    return st;
}

/* The last part of a URL's path, without query; MANTA_EINVAL when there is none. */
static manta_status url_name(const char *url, char **out)
{
    const char *path = strstr(url, "://");

    path = path ? path + 3 : url;
    size_t n = strcspn(path, "?#");
    size_t at = n;

    while (at > 0 && path[at - 1] != '/') at--;
    if (at == 0 || at == n || path[at] == '.') {
        return manta_fail(MANTA_EINVAL, "%s: the URL names no file", url);
    }
    *out = mem_strndup(path + at, n - at);
    return MANTA_OK;
}

static manta_status fetch_url(const char *url, const char *sha, const char *dir, manta_progress_fn progress,
                              void *user, char **where)
{
    char *name = NULL;

    if (sha && (strlen(sha) != 64 || strspn(sha, "0123456789abcdefABCDEF") != 64)) {
        return manta_fail(MANTA_EINVAL, "%s: a sha256 has 64 hexadecimal digits", sha);
    }
    TRY(url_name(url, &name));
    wanted w = {.url = url, .dir = dir, .name = name, .sha256 = sha, .progress = progress, .user = user};
    manta_status st = fetch_file(&w);
    if (!st) *where = mem_printf("%s/%s", dir, name);
    mem_free(name);
    return st;
}

manta_status manta_data_fetch(const char *name_or_url, const char *sha, manta_progress_fn progress,
                              void *user, char *path, size_t path_size)
{
    REFUSE_NULL(name_or_url);

    const builtin_dataset *set = builtin_find(name_or_url);
    char *cache = NULL, *where = NULL, hint[SUGGEST_TEXT];
    manta_status st;

    if (!set && !strstr(name_or_url, "://")) {
        return manta_fail(MANTA_ENOENT, "there is no dataset '%s' to fetch; there are %s, and any URL%s",
                          name_or_url, builtin_names(), builtin_near(name_or_url, hint, sizeof hint));
    }
    TRY(builtin_cache_dir(&cache));
    if (!strncmp(name_or_url, "s3://", 5)) {
        st = remote_bring_all(name_or_url, &where);
        if (!st) st = check_digest(where, name_or_url, sha, false);
    } else if (set) {
        where = mem_printf("%s/%s", cache, set->name);
        st = fetch_set(set, where, progress, user);
    } else {
        st = fetch_url(name_or_url, sha, cache, progress, user, &where);
    }
    if (!st && path && strlen(where) >= path_size) {
        st = manta_fail(MANTA_EINVAL, "%s: the path does not fit into %zu bytes", where, path_size);
    }
    if (!st && path) strcpy(path, where); /* fits */
    mem_free(cache);
    mem_free(where);
    return st;
}
