/* node_socket.c - see node_socket.h. */
#include "task/node_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta/version.h>

#include "base/buf.h"
#include "base/clock.h"
#include "os/file.h"
#include "os/socket.h"
#include "os/sys.h"
#include "task/proto.h"

#define LOCK_LIMIT_MS 2000 /* nobody holds the lock for longer than a few system calls */
#define FOLDER_MOST   80 /* bytes of the folder's path; names in it have at most 24 */

const char *node_socket_base = "/tmp";

/* ---- the folder ---- */

static manta_status check_folder(const char *path)
{
    struct stat s;
    int fd = os->open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

    if (fd < 0 && errno == ENOENT) return manta_fail(MANTA_ENOENT, "there is no folder %s", path);
    if (fd < 0)
        return manta_fail(errno == EACCES || errno == ELOOP || errno == ENOTDIR ? MANTA_EPERM : MANTA_EIO,
                          "%s is to be a folder that only this user can open: %s", path,
                          errno == ELOOP || errno == ENOTDIR ? "it is none" : strerror(errno));
    int failed = os->fstat(fd, &s);
    os->close(fd);
    if (failed) return manta_fail(MANTA_EIO, "%s cannot be looked at: %s", path, strerror(errno));
    if (s.st_uid != geteuid())
        return manta_fail(MANTA_EPERM, "%s belongs to user %u, not to %u: it is not used", path,
                          (unsigned)s.st_uid, (unsigned)geteuid());
    if (s.st_mode & 077)
        return manta_fail(MANTA_EPERM, "%s is open to other users (mode %o, 700 is expected): it is not used",
                          path, (unsigned)s.st_mode & 0777);
    return MANTA_OK;
}

static manta_status make_folder(const char *path, bool make)
{
    if (make && os->mkdir(path, 0700) && errno != EEXIST)
        return manta_fail(MANTA_EIO, "the folder %s cannot be made: %s", path, strerror(errno));
    return check_folder(path);
}

/* Whether somebody else has put something at `path`, or somebody a thing that is no folder. */
static bool is_taken(const char *path)
{
    struct stat s;

    return !lstat(path, &s) && (s.st_uid != geteuid() || !S_ISDIR(s.st_mode));
}

/* The folder where /tmp/manta-UID is taken. Only this user can make it, as nobody else writes to a home;
 * homes are shared by hosts, sockets are not. */
static manta_status folder_at_home(char path[NODE_SOCKET_PATH], bool make)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool is_set = cache && cache[0] == '/';
    char taken[NODE_SOCKET_PATH], host[65] = "";

    memcpy(taken, path, sizeof taken);
    if (!is_set && (!home || home[0] != '/'))
        return manta_fail(
            MANTA_EPERM,
            "%s is another user's, and neither XDG_RUNTIME_DIR nor HOME is set: there is no folder "
            "for the sockets of nodes",
            taken);
    if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "host");
    int n = snprintf(path, NODE_SOCKET_PATH, "%s%s/manta/run-%s", is_set ? cache : home,
                     is_set ? "" : "/.cache", host);
    if (n > FOLDER_MOST)
        return manta_fail(MANTA_EINVAL,
                          "%s is another user's, and the cache folder %s is too long for a socket: a shorter "
                          "XDG_RUNTIME_DIR helps",
                          taken, is_set ? cache : home);
    if (make) TRY(file_mkdirs_own(path));
    return check_folder(path);
}

manta_status node_socket_folder(char path[NODE_SOCKET_PATH], bool make)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    bool is_set = base && base[0] == '/';
    int n = is_set ? snprintf(path, NODE_SOCKET_PATH, "%s/manta", base)
                   : snprintf(path, NODE_SOCKET_PATH, "%s/manta-%u", node_socket_base, (unsigned)geteuid());

    if (n > FOLDER_MOST)
        return manta_fail(MANTA_EINVAL, "XDG_RUNTIME_DIR is too long for a socket: %s", base);
    if (!is_set && is_taken(path)) return folder_at_home(path, make);
    return make_folder(path, make);
}

/* ---- under the lock ---- */

static manta_status lock_folder(const char *folder, int limit_ms, int *out)
{
    char path[NODE_SOCKET_PATH + 8];

    snprintf(path, sizeof path, "%s/lock", folder);
    int fd = os->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return manta_fail(MANTA_EIO, "%s cannot be opened: %s", path, strerror(errno));
    for (int64_t end = clock_deadline(limit_ms); flock(fd, LOCK_EX | LOCK_NB);) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || clock_now_ns() > end) {
            os->close(fd);
            return manta_fail(MANTA_EBUSY, "%s is locked by another process", path);
        }
        (void)os->poll(NULL, 0, 1);
    }
    *out = fd;
    return MANTA_OK;
}

/* Whether a node is behind the socket; MANTA_EDIED: it is only a name. */
static manta_status probe_socket(const char *path)
{
    int fd;
    manta_status st = socket_connect(path, &fd);

    if (!st) socket_close_all(&fd, 1);
    return st;
}

static void sweep_locked(const char *path)
{
    if (probe_socket(path) == MANTA_EDIED) (void)os->unlink(path);
}

void node_socket_sweep(const char *path)
{
    char folder[NODE_SOCKET_PATH];
    int lock;

    snprintf(folder, sizeof folder, "%s", path);
    char *end = strrchr(folder, '/');
    if (!end) return;
    *end = 0;
    if (lock_folder(folder, LOCK_LIMIT_MS, &lock)) return;
    sweep_locked(path);
    os->close(lock);
}

static bool is_socket(const char *name)
{
    size_t n = strlen(name);

    return n > 5 && !strcmp(name + n - 5, ".sock");
}

static void sweep_all(const char *folder)
{
    file_names names = {0};
    char other[NODE_SOCKET_PATH + 256];

    if (!file_list(folder, &names))
        for (size_t i = 0; i < names.n; i++) {
            if (!is_socket(names.at[i])) continue;
            snprintf(other, sizeof other, "%s/%s", folder, names.at[i]);
            sweep_locked(other);
        }
    file_names_release(&names);
}

/* A name that only processes of another pid namespace could have as well. */
static manta_status open_own(const char *folder, char path[NODE_SOCKET_PATH], int *fd)
{
    manta_status st = MANTA_EEXIST;

    for (int i = 0; i < 8 && st == MANTA_EEXIST; i++) {
        if (i == 0)
            snprintf(path, NODE_SOCKET_PATH, "%.80s/%d.sock", folder, (int)getpid());
        else
            snprintf(path, NODE_SOCKET_PATH, "%.80s/%d-%d.sock", folder, (int)getpid(), i);
        st = socket_listen(path, fd);
    }
    return st;
}

manta_status node_socket_open(const char *name, char path[NODE_SOCKET_PATH], int *fd)
{
    char folder[NODE_SOCKET_PATH];
    int lock = -1;

    TRY(node_socket_folder(folder, true));
    /* A name of our own needs no lock, and what is left of others can wait for
     * somebody who has the time. */
    manta_status st = lock_folder(folder, name ? LOCK_LIMIT_MS : 0, &lock);
    if (!st) sweep_all(folder);
    if (name && st) return st;
    if (name) {
        snprintf(path, NODE_SOCKET_PATH, "%.80s/%.20s", folder, name);
        st = socket_listen(path, fd);
    } else {
        st = open_own(folder, path, fd);
    }
    socket_close_all(&lock, 1);
    if (st == MANTA_EEXIST) return manta_fail(st, "a node runs already at %s; manta stop ends it", path);
    return st;
}

/* ---- finding one ---- */

static manta_status connect_to(const char *path, int *fd)
{
    pid_t pid;
    uid_t uid;
    int got;

    TRY(socket_connect(path, &got));
    manta_status st = socket_peer(got, &pid, &uid);
    if (!st && uid != geteuid())
        st = manta_fail(MANTA_EPERM, "the node at %s belongs to user %u, not to %u", path, (unsigned)uid,
                        (unsigned)geteuid());
    if (st) {
        socket_close_all(&got, 1);
        return st;
    }
    *fd = got;
    return MANTA_OK;
}

manta_status node_socket_connect_main(char path[NODE_SOCKET_PATH], int *fd)
{
    char folder[NODE_SOCKET_PATH];
    manta_status st = node_socket_folder(folder, false);

    if (st == MANTA_ENOENT) return manta_fail(st, "no node was started");
    if (st) return st;
    snprintf(path, NODE_SOCKET_PATH, "%.80s/%s", folder, NODE_SOCKET_MAIN);
    st = connect_to(path, fd);
    if (st == MANTA_ENOENT || st == MANTA_EDIED) return manta_fail(MANTA_ENOENT, "no node was started");
    return st;
}

/* The only node there is, beside a started one. */
static manta_status connect_only(const char *folder, char path[NODE_SOCKET_PATH], int *fd)
{
    file_names names = {0};
    buf several = {0};
    int n = 0;
    manta_status st = file_list(folder, &names);

    for (size_t i = 0; !st && i < names.n; i++) {
        char other[NODE_SOCKET_PATH];
        int got;
        if (!is_socket(names.at[i]) || strlen(names.at[i]) > 24) continue;
        snprintf(other, sizeof other, "%.80s/%.24s", folder, names.at[i]);
        if (connect_to(other, &got)) continue;
        buf_printf(&several, "%s%.*s", n ? ", " : "", (int)strlen(names.at[i]) - 5, names.at[i]);
        if (n++ == 0) {
            memcpy(path, other, sizeof other);
            *fd = got;
        } else {
            socket_close_all(&got, 1);
        }
    }
    if (!st && n == 0) st = manta_fail(MANTA_ENOENT, "no node runs; manta start starts one");
    if (!st && n > 1) {
        socket_close_all(fd, 1);
        st =
            manta_fail(MANTA_EBUSY, "%d nodes run: say which by --node and one of %s", n, buf_text(&several));
    }
    buf_release(&several);
    file_names_release(&names);
    return st;
}

manta_status node_socket_connect(const char *address, char path[NODE_SOCKET_PATH], int *fd)
{
    char folder[NODE_SOCKET_PATH];

    if (address && strchr(address, '/')) {
        if (strlen(address) >= NODE_SOCKET_PATH)
            return manta_fail(MANTA_EINVAL, "%s is too long for a socket", address);
        snprintf(path, NODE_SOCKET_PATH, "%s", address);
        manta_status st = connect_to(path, fd);
        if (st == MANTA_ENOENT || st == MANTA_EDIED)
            return manta_fail(MANTA_ENOENT, "no node is at %s", path);
        return st;
    }
    manta_status st = node_socket_folder(folder, false);
    if (st == MANTA_ENOENT) return manta_fail(st, "no node runs; manta start starts one");
    if (st) return st;
    if (address && strcmp(address, "auto") != 0) {
        snprintf(path, NODE_SOCKET_PATH, "%.80s/%.20s.sock", folder, address);
        st = connect_to(path, fd);
        if (st == MANTA_ENOENT || st == MANTA_EDIED)
            return manta_fail(MANTA_ENOENT, "no node is called %s (there is no %s)", address, path);
        return st;
    }
    st = node_socket_connect_main(path, fd);
    return st == MANTA_ENOENT ? connect_only(folder, path, fd) : st;
}

void node_socket_hello(buf *b, uint32_t role, const char *space, int prestart)
{
    proto_begin(b, PROTO_HELLO);
    wire_put_u32(b, PROTO_MAGIC);
    wire_put_u32(b, PROTO_VERSION);
    wire_put_u32(b, role);
    wire_put_u32(b, (uint32_t)prestart);
    wire_put_text(b, MANTA_VERSION_TEXT);
    wire_put_text(b, space);
}
