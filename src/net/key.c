/* key.c - see key.h. */
#include "net/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "os/sys.h"

enum { TEXT = 2 * KEY_SIZE, PATH = 4096 };

void key_wipe(cluster_key *k)
{
    explicit_bzero(k, sizeof *k);
}

manta_status key_hold(const cluster_key *k, cluster_key **out)
{
    void *at = mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) return manta_fail(MANTA_ENOMEM, "no memory for a cluster key: %s", strerror(errno));
    if (madvise(at, sizeof *k, MADV_DONTDUMP)) {
        int err = errno;
        munmap(at, sizeof *k);
        return manta_fail(MANTA_EIO, "a cluster key cannot be kept out of core dumps: %s", strerror(err));
    }
    (void)mlock(at, sizeof *k); /* where there is a limit of 0 it may be swapped, as all else */
    *out = at;
    if (k) **out = *k;
    return MANTA_OK;
}

void key_drop(cluster_key *k)
{
    if (!k) return;
    key_wipe(k);
    munmap(k, sizeof *k);
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool parse_key(const char *text, size_t n, unsigned char out[KEY_SIZE])
{
    while (n && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' ')) n--;
    if (n != TEXT) return false;
    for (int i = 0; i < KEY_SIZE; i++) {
        int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* Whether nobody else can read the file or could have put it there. */
static manta_status check_owner(int fd, const char *path)
{
    struct stat st;

    if (os->fstat(fd, &st))
        return manta_fail(MANTA_EIO, "cluster key %s cannot be looked at: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return manta_fail(MANTA_EPERM, "cluster key %s is not a plain file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return manta_fail(MANTA_EPERM, "cluster key %s belongs to another user", path);
    if (st.st_mode & 077) {
        return manta_fail(MANTA_EPERM,
                          "cluster key %s can be read by others (mode %03o); make it private: chmod 600",
                          path, (unsigned)(st.st_mode & 0777));
    }
    return MANTA_OK;
}

manta_status key_read(const char *path, cluster_key *out)
{
    char text[TEXT + 8];
    size_t n = 0;
    ssize_t got = 0;
    int fd = os->open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY, 0);
    manta_status st;

    if (fd < 0) {
        return manta_fail(errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "cluster key %s cannot be opened: %s",
                          path, strerror(errno));
    }
    if ((st = check_owner(fd, path))) goto out;
    while (n < sizeof text) {
        got = os->read(fd, text + n, sizeof text - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    if (got < 0) {
        st = manta_fail(MANTA_EIO, "cluster key %s cannot be read: %s", path, strerror(errno));
    } else if (!parse_key(text, n, out->bytes)) {
        st = manta_fail(MANTA_ECORRUPT, "cluster key %s holds no key, expected %d hexadecimal digits", path,
                        TEXT);
    }
out:
    explicit_bzero(text, sizeof text);
    os->close(fd);
    return st;
}

manta_status key_path(char *out, size_t size)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n;

    if (config && config[0] == '/') {
        n = snprintf(out, size, "%s/manta/cluster.key", config);
    } else if (home && home[0] == '/') {
        n = snprintf(out, size, "%s/.config/manta/cluster.key", home);
    } else {
        return manta_fail(MANTA_ENOENT,
                          "no place for a cluster key: neither XDG_CONFIG_HOME nor HOME is set; name a file "
                          "with MANTA_CLUSTER_KEY");
    }
    if (n < 0 || (size_t)n >= size) return manta_fail(MANTA_EINVAL, "the cluster key's path is too long");
    return MANTA_OK;
}

/* Makes the folders above `path`, only ours to enter. */
static manta_status make_folders(const char *path)
{
    char part[PATH];

    if (strlen(path) >= sizeof part)
        return manta_fail(MANTA_EINVAL, "the path of the cluster key has %zu bytes, at most %zu are possible",
                          strlen(path), sizeof part - 1);
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        memcpy(part, path, (size_t)(slash - path));
        part[slash - path] = '\0';
        if (os->mkdir(part, 0700) && errno != EEXIST)
            return manta_fail(MANTA_EIO, "folder %s cannot be made: %s", part, strerror(errno));
    }
    return MANTA_OK;
}

static manta_status write_key(int fd, const char *path)
{
    unsigned char bytes[KEY_SIZE];
    char text[TEXT + 2];
    size_t done = 0;
    manta_status st = MANTA_OK;

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return manta_fail(MANTA_EIO, "there are no random bytes for a cluster key: %s", strerror(errno));
    for (int i = 0; i < KEY_SIZE; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    text[TEXT] = '\n';
    while (done < TEXT + 1 && !st) {
        ssize_t n = os->write(fd, text + done, TEXT + 1 - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno != EINTR) {
            st = manta_fail(errno == ENOSPC ? MANTA_ENOSPC : MANTA_EIO,
                            "cluster key %s cannot be written: %s", path, strerror(errno));
        }
    }
    if (!st && os->fsync(fd))
        st = manta_fail(MANTA_EIO, "cluster key %s cannot be written: %s", path, strerror(errno));
    explicit_bzero(bytes, sizeof bytes);
    explicit_bzero(text, sizeof text);
    return st;
}

/* A file of this process alone, whatever lies under the name: what is left of a process that had the
 * same number goes, and what cannot go, because it is another user's, is not written to. */
static int open_temporary(const char *path)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, fd = os->open(path, flags, 0600);

    if (fd < 0 && errno == EEXIST && !os->unlink(path)) fd = os->open(path, flags, 0600);
    return fd;
}

/* Written under a name of its own, then given the real one by link(), which
 * fails when another process was first: a reader never sees half a key. *there: something had the
 * name. */
static manta_status place_key(const char *path, bool *there)
{
    char temporary[PATH + 32];
    manta_status st;
    int fd;

    *there = false;
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    fd = open_temporary(temporary);
    if (fd < 0) {
        return manta_fail(errno == ENOENT ? MANTA_ENOENT : MANTA_EIO, "cluster key %s cannot be made: %s",
                          path, strerror(errno));
    }
    st = write_key(fd, path);
    os->close(fd);
    if (!st && link(temporary, path)) {
        *there = errno == EEXIST;
        if (!*there) st = manta_fail(MANTA_EIO, "cluster key %s cannot be made: %s", path, strerror(errno));
    }
    os->unlink(temporary);
    return st;
}

manta_status key_make(const char *path)
{
    bool there;

    TRY(make_folders(path));
    return place_key(path, &there);
}

manta_status key_make_new(const char *path)
{
    cluster_key k;
    bool there;
    manta_status st;

    if (strlen(path) >= PATH)
        return manta_fail(MANTA_EINVAL, "the path of the cluster key has %zu bytes, at most %d are possible",
                          strlen(path), PATH - 1);
    TRY(place_key(path, &there));
    if (there) {
        return manta_fail(
            MANTA_EEXIST,
            "cluster key %s cannot be made: something has that name already, and stays as it is", path);
    }
    st = key_read(path, &k);
    key_wipe(&k);
    if (st) os->unlink(path);
    return st;
}

manta_status key_find(const char *path, cluster_key *out)
{
    char own[PATH];
    struct stat st;

    if (!path) path = getenv("MANTA_CLUSTER_KEY");
    if (path && *path) {
        TRY(key_read(path, out));
        out->given = true;
        return MANTA_OK;
    }
    TRY(key_path(own, sizeof own));
    if (os->stat(own, &st)) TRY(key_make(own));
    TRY(key_read(own, out));
    out->given = false;
    return MANTA_OK;
}
