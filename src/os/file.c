/* file.c - whole files, names and folders. The writer is in file_writer.c. */
#include "os/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "os/sys.h"

enum { PIECE = 1 << 20 }; /* bytes that a file is read by */

manta_status file_fail(int err, const char *doing, const char *path)
{
    manta_status st = MANTA_EIO;

    switch (err) {
    case ENOENT:
    case ENOTDIR: st = MANTA_ENOENT; break;
    case EEXIST: st = MANTA_EEXIST; break;
    case EACCES:
    case EPERM:
    case EROFS: st = MANTA_EPERM; break;
    case ENOSPC:
    case EDQUOT: st = MANTA_ENOSPC; break;
    case ENOMEM: st = MANTA_ENOMEM; break;
    case EBUSY:
    case ETXTBSY: st = MANTA_EBUSY; break;
    }
    return manta_fail(st, "%s %s: %s", doing, path, strerror(err));
}

static int open_retry(const char *path, int flags)
{
    int fd;

    do fd = os->open(path, flags | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static ssize_t read_retry(int fd, void *at, size_t n)
{
    ssize_t got;

    do got = os->read(fd, at, n);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Bytes read so far, in a block that grows. */
typedef struct block {
    char *at;
    size_t n, cap; /* cap: without the terminator */
} block;

static manta_status block_grow(block *b, size_t cap, const char *path)
{
    char *at = mem_try_raw(cap + 1);

    if (!at)
        return manta_fail(MANTA_ENOMEM, "reading %s: %zu bytes of memory could not be had", path, cap + 1);
    if (b->n > 0) memcpy(at, b->at, b->n);
    mem_try_free(b->at);
    b->at = at;
    b->cap = cap;
    return MANTA_OK;
}

/* Reads to the end of fd. The size that fstat() gave is only where to start:
 * files of /proc say 0, and a file may grow while it is read. */
static manta_status read_all(int fd, const char *path, size_t max_size, size_t expected, block *b)
{
    TRY(block_grow(b, expected, path));
    assert(b->at);
    for (;;) {
        char extra; /* where the end of a full block, and a file over max_size, are noticed */
        bool full = b->n == b->cap;
        ssize_t got = read_retry(fd, full ? &extra : b->at + b->n, full ? 1 : b->cap - b->n);
        if (got < 0) return file_fail(errno, "reading", path);
        if (got == 0) return MANTA_OK;
        if (full) {
            if (b->n >= max_size)
                return manta_fail(MANTA_EINVAL, "reading %s: it has more than the %zu bytes expected at most",
                                  path, max_size);
            size_t cap = b->cap < max_size / 2 ? b->cap * 2 + 4096 : max_size;
            TRY(block_grow(b, cap < max_size ? cap : max_size, path));
            b->at[b->n] = extra;
        }
        b->n += (size_t)got;
    }
}

manta_status file_read(const char *path, size_t max_size, void **out, size_t *size)
{
    manta_status st = MANTA_OK;
    block b = {0};
    struct stat info;

    if (max_size > PTRDIFF_MAX - 1) max_size = PTRDIFF_MAX - 1;

    int fd = open_retry(path, O_RDONLY);
    if (fd < 0) return file_fail(errno, "opening", path);
    if (os->fstat(fd, &info)) {
        st = file_fail(errno, "looking at", path);
        goto out;
    }
    if (S_ISDIR(info.st_mode)) {
        st = file_fail(EISDIR, "reading", path);
        goto out;
    }
    if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) { /* one without an end would fill all memory */
        st = manta_fail(MANTA_EINVAL, "reading %s: it is a device, expected a file or a pipe", path);
        goto out;
    }
    if (S_ISREG(info.st_mode) && info.st_size > 0 && (uint64_t)info.st_size > max_size) {
        st = manta_fail(MANTA_EINVAL, "reading %s: its %lld bytes are more than the %zu expected at most",
                        path, (long long)info.st_size, max_size);
        goto out;
    }
    if ((st = read_all(fd, path, max_size, info.st_size > 0 ? (size_t)info.st_size : 0, &b))) goto out;
    assert(b.at);
    b.at[b.n] = 0;
    *out = b.at;
    *size = b.n;
    b.at = NULL;
out:
    mem_try_free(b.at);
    os->close(fd);
    return st;
}

manta_status file_read_text(const char *path, char *text, size_t size)
{
    manta_status st = MANTA_OK;
    size_t n = 0;
    ssize_t got = 1;
    int fd = open_retry(path, O_RDONLY);

    if (fd < 0) return file_fail(errno, "opening", path);
    while (got > 0 && n < size) {
        got = read_retry(fd, text + n, size - n);
        if (got > 0) n += (size_t)got;
    }
    if (got < 0)
        st = file_fail(errno, "reading", path);
    else if (n == size) /* no room for the terminator */
        st = manta_fail(MANTA_EINVAL, "reading %s: it has more than the %zu bytes expected at most", path,
                        size - 1);
    else
        text[n] = 0;
    os->close(fd);
    return st;
}

/* Creates one folder; fine when it is there already, also when another process
 * is making the same one now. */
static manta_status mkdir_one(const char *path, mode_t mode)
{
    struct stat info;

    if (os->mkdir(path, mode) == 0) return MANTA_OK;
    int err = errno;
    if (err == EEXIST || err == EISDIR || err == EROFS || err == EACCES) {
        if (os->stat(path, &info) == 0) {
            if (S_ISDIR(info.st_mode)) return MANTA_OK;
            return manta_fail(MANTA_EEXIST, "creating folder %s: a file has that name", path);
        }
    }
    return file_fail(err, "creating folder", path);
}

static manta_status make_folders(const char *path, mode_t last)
{
    manta_status st = MANTA_OK;
    char *part = mem_strdup(path);

    /* Each prefix that ends before a slash, then the whole. */
    for (char *p = part + 1; *part && *p; p++) {
        if (*p != '/' || p[-1] == '/') continue;
        *p = 0;
        st = mkdir_one(part, 0777);
        *p = '/';
        if (st) goto out;
    }
    st = mkdir_one(part, last);
out:
    mem_free(part);
    return st;
}

manta_status file_mkdirs(const char *path)
{
    return make_folders(path, 0777);
}

manta_status file_mkdirs_own(const char *path)
{
    return make_folders(path, 0700);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds the names that d gives to `names`. */
static manta_status read_names(DIR *d, const char *path, file_names *names)
{
    for (;;) {
        errno = 0; /* the only way to tell the end from a failure */
        struct dirent *e = os->readdir(d);
        if (!e && errno) return file_fail(errno, "listing folder", path);
        if (!e) return MANTA_OK;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        vec_push(names, mem_strdup(e->d_name));
    }
}

manta_status file_list(const char *path, file_names *out)
{
    manta_status st = MANTA_OK;
    file_names names = {0};
    int fd = open_retry(path, O_RDONLY | O_DIRECTORY);

    if (fd < 0) return file_fail(errno, "opening folder", path);
    DIR *d = os->fdopendir(fd);
    if (!d) {
        st = file_fail(errno, "opening folder", path);
        os->close(fd);
        return st;
    }
    if ((st = read_names(d, path, &names))) goto out;
    if (names.n > 0) qsort(names.at, names.n, sizeof *names.at, by_bytes);
    for (size_t i = 0; i < names.n; i++) vec_push(out, names.at[i]);
    vec_clear(&names); /* the strings are the caller's now */
out:
    file_names_release(&names);
    os->closedir(d);
    return st;
}

void file_names_release(file_names *names)
{
    for (size_t i = 0; i < names->n; i++) mem_free(names->at[i]);
    vec_release(names);
}

static file_info info_of(const struct stat *info)
{
    return (file_info){
        .size = info->st_size > 0 ? (uint64_t)info->st_size : 0,
        .is_folder = S_ISDIR(info->st_mode),
        .is_file = S_ISREG(info->st_mode),
        .changed_ns = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec,
    };
}

manta_status file_stat(const char *path, file_info *out)
{
    struct stat info;

    if (os->stat(path, &info)) return file_fail(errno, "looking at", path);
    *out = info_of(&info);
    return MANTA_OK;
}

manta_status file_look(const char *path, file_info *out)
{
    struct stat info;
    int fd = open_retry(path, O_PATH | O_NOFOLLOW), rc;

    if (fd < 0) return file_fail(errno, "looking at", path);
    rc = os->fstat(fd, &info) ? errno : 0;
    os->close(fd);
    if (rc) return file_fail(rc, "looking at", path);
    *out = info_of(&info);
    return MANTA_OK;
}

manta_status file_link(const char *from, const char *to)
{
    if (os->link(from, to)) return file_fail(errno, "giving a second name to", from);
    return MANTA_OK;
}

manta_status file_remove(const char *path)
{
    if (os->unlink(path)) return file_fail(errno, "removing", path);
    return MANTA_OK;
}

manta_status file_remove_tree(const char *path)
{
    file_names names = {0};
    manta_status st;

    if (!os->unlink(path)) return MANTA_OK;
    if (errno != EISDIR && errno != EPERM) return file_fail(errno, "removing", path);
    if ((st = file_list(path, &names))) goto out;
    for (size_t i = 0; i < names.n && !st; i++) {
        char *inner = mem_printf("%s/%s", path, names.at[i]);
        st = file_remove_tree(inner);
        mem_free(inner);
    }
    if (!st && os->rmdir(path)) st = file_fail(errno, "removing", path);
out:
    file_names_release(&names);
    return st;
}

char *file_above(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash) return mem_strdup(".");
    return mem_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

manta_status file_rename(const char *from, const char *to)
{
    if (os->rename(from, to)) return file_fail(errno, "putting in place", to);
    return MANTA_OK;
}

manta_status file_sync(const char *path)
{
    int fd = open_retry(path, O_RDONLY | O_NOFOLLOW), rc, err;

    if (fd < 0) return file_fail(errno, "opening", path);
    do rc = os->fsync(fd);
    while (rc && errno == EINTR);
    err = errno;
    os->close(fd);
    return rc ? file_fail(err, "bringing to disk", path) : MANTA_OK;
}

manta_status file_sync_tree(const char *path)
{
    file_names names = {0};
    file_info info = {0};
    manta_status st;

    TRY(file_look(path, &info));
    if (info.is_file) return file_sync(path);
    if (!info.is_folder)
        return manta_fail(MANTA_EINVAL, "%s is neither file nor folder: it cannot be kept", path);
    if ((st = file_list(path, &names))) return st;
    for (size_t i = 0; i < names.n && !st; i++) {
        char *inner = mem_printf("%s/%s", path, names.at[i]);
        st = file_sync_tree(inner);
        mem_free(inner);
    }
    file_names_release(&names);
    return st ? st : file_sync_folder(path);
}

manta_status file_copy(const char *from, const char *to)
{
    file_writer *w = NULL;
    manta_status st;
    ssize_t n;
    char *piece;
    int fd = open_retry(from, O_RDONLY);

    if (fd < 0) return file_fail(errno, "opening", from);
    piece = mem_new(PIECE);
    st = file_writer_open(to, &w);
    while (!st && (n = read_retry(fd, piece, PIECE))) {
        st = n < 0 ? file_fail(errno, "reading", from) : file_writer_write(w, piece, (size_t)n);
    }
    if (!st) st = file_writer_commit(w);
    file_writer_free(w);
    mem_free(piece);
    os->close(fd);
    return st;
}

manta_status file_sum_of(const char *path, file_sum *out)
{
    file_sum sum = {0};
    manta_status st = MANTA_OK;
    char *piece;
    int fd = open_retry(path, O_RDONLY);

    if (fd < 0) return file_fail(errno, "opening", path);
    piece = mem_new(PIECE);
    for (;;) {
        ssize_t n = os->read(fd, piece, PIECE);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) st = file_fail(errno, "reading", path);
        if (n <= 0) break;
        sum.crc = crc32c(sum.crc, piece, (size_t)n);
        sum.size += (uint64_t)n;
    }
    os->close(fd);
    mem_free(piece);
    if (!st) *out = sum;
    return st;
}
