/* remote.c - see remote.h. */
#include "format/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "format/builtin_datasets.h"
#include "format/fetch.h"
#include "os/file.h"
#include "os/sys.h"
#include "web/http.h"
#include "web/s3.h"
#include "web/sigv4.h"

enum { LOOK_MS = 30000, MARK_MOST = 1024, TRIES = 3 };

/* ---- addresses ---- */

size_t remote_length(const char *text)
{
    static const char *const schemes[] = {"s3://", "https://", "http://"};

    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (strncmp(text, schemes[i], n) != 0) continue;
        n += strcspn(text + n, "/,"); /* the host, with its port */
        return n + strcspn(text + n, ",:");
    }
    return 0;
}

static bool is_s3(const char *url)
{
    return !strncmp(url, "s3://", 5);
}

/* Addresses that are signed, as those of Amazon, Google and Azure, and tokens by their usual names. */
static bool has_secret(const char *url)
{
    static const char *const names[] = {
        "signature=", "x-amz-credential=", "x-amz-security-token=", "?sig=", "&sig=", "token="};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasestr(url, names[i])) return true;
    return false;
}

/* A specification is kept with the run, so nothing that opens a door may be in it. */
static manta_status check_address(const char *url)
{
    const char *host = strstr(url, "://") + 3;
    size_t n = strcspn(host, "/");

    if (memchr(host, '@', n) || has_secret(url))
        return manta_fail(MANTA_EINVAL,
                          "the address of data at %.*s has a password or signature in it, and would be kept "
                          "with the run; expected s3://BUCKET/KEY with credentials from the environment",
                          (int)strcspn(host, "/@?"), memchr(host, '@', n) ? "..." : host);
    if (strpbrk(url, "*{"))
        return manta_fail(MANTA_EINVAL, "%.200s: expected the address of one file, without '*' and '{'", url);
    return MANTA_OK;
}

/* The last part of the address's path; NULL: it has none. Owned. */
static char *name_of(const char *url)
{
    const char *path = strstr(url, "://") + 3;
    size_t n = strcspn(path, "?#"), at = n;

    while (at && path[at - 1] != '/') at--;
    return at && at < n && path[at] != '.' ? mem_strndup(path + at, n - at) : NULL;
}

/* ---- what the server has ---- */

/* A text that changes with the file: its mark, or when it was changed, and its size. */
static manta_status look_http(const char *url, buf *out)
{
    http_call c = {.method = "HEAD", .url = url, .follow = true, .deadline = clock_deadline(LOOK_MS)};
    http_call *all[] = {&c};
    manta_status st = http_perform(all, 1);

    if (!st && (c.trouble || c.status != 200))
        st = manta_fail(c.status == 404 ? MANTA_ENOENT : MANTA_EIO,
                        "looking at %.200s: the server answered %d%s%s", url, c.status, c.trouble ? ", " : "",
                        c.why);
    if (!st) buf_printf(out, "%s %s %lld", c.etag, c.last_modified, (long long)c.length);
    /* Without either it may be another each time. */
    if (!st && !c.etag[0] && !c.last_modified[0]) buf_printf(out, " %lld", (long long)clock_wall_ns());
    http_release(&c);
    return st;
}

static manta_status look_s3(const char *url, buf *out)
{
    s3_place p = {0};
    s3_object about;
    manta_status st;

    TRY(s3_place_parse(url, &p));
    if (!(st = s3_look(&p, &about))) buf_printf(out, "%s %llu", about.etag, (unsigned long long)about.size);
    s3_place_release(&p);
    return st;
}

static manta_status write_piece(void *ctx, const s3_object *about, const void *data, size_t n)
{
    (void)about;
    return file_writer_write(ctx, data, n);
}

static manta_status bring_s3(const char *url, const char *path)
{
    s3_place p = {0};
    file_writer *w = NULL;
    manta_status st;

    TRY(s3_place_parse(url, &p));
    st = file_writer_open(path, &w);
    if (!st) st = s3_stream(&p, write_piece, w);
    if (!st) st = file_writer_commit(w);
    file_writer_free(w);
    s3_place_release(&p);
    return st;
}

static manta_status bring_http(const char *url, const char *folder, const char *name)
{
    manta_status st = MANTA_OK;

    for (int i = 0; i < TRIES; i++) {
        st = fetch_to(url, folder, name);
        if (st != MANTA_EIO && st != MANTA_ETIMEDOUT) break;
    }
    return st;
}

/* ---- bringing ---- */

/* Whether the file is here, as the server has it. */
static bool is_here(const char *path, const char *mark_path, const buf *mark)
{
    void *text = NULL;
    size_t n = 0;
    file_info info;
    bool same = !file_stat(path, &info) && info.is_file && !file_read(mark_path, MARK_MOST, &text, &n) &&
                n == mark->n && !memcmp(text, buf_text(mark), n);

    mem_try_free(text);
    return same;
}

static manta_status bring_new(const char *url, const char *folder, const char *name, const char *path,
                              const char *mark_path, const buf *mark)
{
    manta_status st = file_remove(mark_path);

    if (st && st != MANTA_ENOENT) return st;
    log_info("data is brought from a server", LOG_STR("from", url), LOG_STR("to", path));
    TRY(is_s3(url) ? bring_s3(url, path) : bring_http(url, folder, name));
    return file_replace(mark_path, buf_text(mark), mark->n);
}

/* One process at a time brings a file; workers that open the same data find what the first has brought.
 * -1: there are no locks here, and each brings its own. */
static int lock_folder(const char *folder)
{
    int fd = os->open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), rc;

    if (fd < 0) return -1;
    if (!flock(fd, LOCK_EX | LOCK_NB)) return fd;
    if (errno == EWOULDBLOCK)
        log_info("waiting for another process that brings the same data", LOG_STR("to", folder));
    do rc = flock(fd, LOCK_EX);
    while (rc && errno == EINTR);
    return fd;
}

/* The lock goes although a process that was forked meanwhile still has the descriptor. */
static void unlock_folder(int fd)
{
    if (fd < 0) return;
    (void)flock(fd, LOCK_UN);
    os->close(fd);
}

/* Brings one file. *out: where it is; owned. */
static manta_status bring_file(const char *url, char **out)
{
    char sum[65], *cache = NULL, *folder = NULL, *name = name_of(url), *path = NULL, *mark_path = NULL;
    buf mark = {0};
    file_info info;
    manta_status st = check_address(url);
    int guard = -1;

    if (!st && !name) st = manta_fail(MANTA_EINVAL, "%.200s names no file", url);
    if (st || (st = builtin_cache_dir(&cache))) goto out;
    sigv4_payload(url, strlen(url), sum);
    folder = mem_printf("%s/remote/%.16s", cache, sum);
    path = mem_printf("%s/%s", folder, name);
    mark_path = mem_printf("%s.etag", path);
    if ((st = file_mkdirs(folder))) goto out;
    guard = lock_folder(folder);
    st = is_s3(url) ? look_s3(url, &mark) : look_http(url, &mark);
    if ((st == MANTA_EIO || st == MANTA_ETIMEDOUT) && !file_stat(mark_path, &info) &&
        !file_stat(path, &info)) {
        log_warn("the server cannot be asked; what was brought earlier is read", LOG_STR("path", path),
                 LOG_STR("why", manta_error_text()));
        st = MANTA_OK;
    } else if (!st && !is_here(path, mark_path, &mark)) {
        st = bring_new(url, folder, name, path, mark_path, &mark);
    }
    if (!st) {
        *out = path;
        path = NULL;
    }
out:
    unlock_folder(guard);
    buf_release(&mark);
    mem_free(mark_path);
    mem_free(path);
    mem_free(folder);
    mem_free(name);
    mem_free(cache);
    return st;
}

manta_status remote_bring_all(const char *spec, char **out)
{
    buf made = {0};
    bool some = false;
    manta_status st = MANTA_OK;

    *out = NULL;
    for (const char *p = spec; *p && !st;) {
        bool begins = p == spec || p[-1] == ',' || p[-1] == '=';
        size_t n = begins ? remote_length(p) : 0;
        if (n) {
            char *url = mem_strndup(p, n), *path = NULL;
            if (!(st = bring_file(url, &path))) buf_add_text(&made, path);
            mem_free(path);
            mem_free(url);
            p += n;
            some = true;
        } else {
            buf_add_char(&made, *p++);
        }
    }
    if (!st && some) *out = buf_take(&made);
    buf_release(&made);
    return st;
}
