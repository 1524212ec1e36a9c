/* rendezvous_local.c - see rendezvous.h.
 *
 * A rank says who it is; the answer is the shared memory, or a sentence. Both
 * sides look at whose process the other is before they believe a byte. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rendezvous.h"
#include "os/socket.h"
#include "os/sys.h"

enum { TRY_MS = 5, ANSWER_MS = 10000 };

typedef struct local_hello {
    uint64_t magic;
    uint32_t version, rank;
    shm_head head; /* as this rank would have made it */
} local_hello;

typedef struct local_answer {
    uint64_t magic;
    manta_error error; /* code MANTA_OK: the memory comes with this */
} local_answer;

static manta_status socket_address_of(const char *path, struct sockaddr_un *a, socklen_t *size)
{
    size_t n = strlen(path);

    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (n == 0 || n >= sizeof a->sun_path)
        return manta_fail(MANTA_EINVAL, "unix:%s: the path is empty or too long, expected 1 to %zu bytes",
                          path, sizeof a->sun_path - 1);
    memcpy(a->sun_path, path, n);
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + (path[0] != '@'));
    if (path[0] == '@') a->sun_path[0] = '\0';
    return MANTA_OK;
}

static manta_status new_socket(int *fd)
{
    *fd = os->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return *fd < 0 ? manta_fail(MANTA_EIO, "a socket cannot be made: %s", strerror(errno)) : MANTA_OK;
}

static manta_status check_peer(int fd)
{
    pid_t pid;
    uid_t uid;

    TRY(socket_peer(fd, &pid, &uid));
    if (uid != getuid() && uid != 0)
        return manta_fail(MANTA_EPERM, "process %d of user %u is not of this user's group", (int)pid,
                          (unsigned)uid);
    return MANTA_OK;
}

/* ---- rank 0 ---- */

/* A file that nobody listens at is left from a run that was killed. */
static void remove_stale_socket(const char *path, const struct sockaddr_un *a, socklen_t size)
{
    int probe = os->socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (probe < 0) return;
    if (os->connect(probe, (const struct sockaddr *)a, size) && errno == ECONNREFUSED) (void)os->unlink(path);
    os->close(probe);
}

static manta_status listen_at(const char *path, int *out)
{
    struct sockaddr_un a;
    socklen_t size = 0;
    int fd, rc, err;

    TRY(socket_address_of(path, &a, &size));
    TRY(new_socket(&fd));
    rc = os->bind(fd, (const struct sockaddr *)&a, size);
    if (rc && errno == EADDRINUSE && path[0] != '@') {
        remove_stale_socket(path, &a, size);
        rc = os->bind(fd, (const struct sockaddr *)&a, size);
    }
    if (!rc && !os->listen(fd, MANTA_GROUP_MAX)) {
        *out = fd;
        return MANTA_OK;
    }
    err = errno;
    os->close(fd);
    return manta_fail(err == EADDRINUSE ? MANTA_EBUSY : MANTA_EIO, "unix:%s cannot be listened at: %s", path,
                      strerror(err));
}

static manta_status check_hello(const local_hello *h, size_t n, const shm_head *mine, const bool *met)
{
    if (n != sizeof *h || h->magic != SHM_MAGIC || h->version != SHM_VERSION)
        return manta_fail(MANTA_EPERM, "a process that is no rank of this version wanted to join");
    if (h->head.size != mine->size)
        return manta_fail(MANTA_EINVAL, "rank %u is in a group of %u, and rank 0 in one of %u", h->rank,
                          h->head.size, mine->size);
    if (h->rank == 0 || h->rank >= mine->size || met[h->rank])
        return manta_fail(MANTA_EEXIST, "rank %u of the group is already taken", h->rank);
    if (memcmp(&h->head, mine, sizeof *mine) != 0)
        return manta_fail(MANTA_EINVAL, "rank %u and rank 0 have different options of their group", h->rank);
    return MANTA_OK;
}

/* Takes one rank in; one that cannot be is told why, and disturbs nobody. */
static void answer_rank(int fd, int memory, const shm_head *mine, bool *met, int *count)
{
    local_hello h;
    local_answer a = {.magic = SHM_MAGIC};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int fds[SOCKET_MAX_FDS], n_fds = 0;
    size_t n = 0;

    if (check_peer(fd) || socket_poll(&p, 1, ANSWER_MS) <= 0) return;
    if (socket_recv(fd, &h, sizeof h, &n, fds, &n_fds, false)) return;
    socket_close_all(fds, n_fds);
    bool bad = check_hello(&h, n, mine, met) != MANTA_OK;
    if (bad) manta_error_get(&a.error);
    if (socket_send(fd, &a, sizeof a, &memory, bad ? 0 : 1, false) || bad) return;
    met[h.rank] = true;
    ++*count;
}

static manta_status answer_all_ranks(const char *path, int listener, int memory, const shm_head *mine,
                                     int64_t deadline)
{
    bool met[MANTA_GROUP_MAX] = {true};
    int count = 1, size = (int)mine->size;
    char text[200] = "";

    while (count < size) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        int got = socket_poll(&p, 1, clock_left_ms(deadline));
        if (got < 0)
            return manta_fail(MANTA_EIO, "nobody can be waited for at unix:%s: %s", path, strerror(errno));
        if (got == 0 && clock_now_ns() >= deadline) break;
        if (got == 0) continue;
        int fd = os->accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        answer_rank(fd, memory, mine, met, &count);
        os->close(fd);
    }
    for (int i = 0; i < size; i++)
        if (!met[i]) transport_name(text, sizeof text, i);
    if (count == size) return MANTA_OK;
    return manta_fail(MANTA_ETIMEDOUT, "rank 0 waited %lld ms at unix:%s; missing: %s",
                      (long long)mine->join_timeout_ms, path, text);
}

static manta_status join_as_host(const char *path, const shm_head *h, shm **out)
{
    int64_t deadline = clock_deadline(h->join_timeout_ms);
    int listener = -1, memory = -1;
    manta_status st = listen_at(path, &listener);

    if (st) return st;
    if (!st) st = shm_group_new(h, &memory);
    if (!st) st = answer_all_ranks(path, listener, memory, h, deadline);
    if (path[0] != '@') (void)os->unlink(path);
    os->close(listener);
    if (!st) st = shm_group_join(memory, 0, out);
    if (memory >= 0) os->close(memory);
    return st;
}

/* ---- the others ---- */

static manta_status connect_host(const char *path, int rank, int64_t deadline, int64_t timeout_ms, int *out)
{
    struct sockaddr_un a;
    socklen_t size = 0;

    TRY(socket_address_of(path, &a, &size));
    for (;;) {
        int fd, err;
        TRY(new_socket(&fd));
        if (!os->connect(fd, (const struct sockaddr *)&a, size)) {
            *out = fd;
            return MANTA_OK;
        }
        err = errno;
        os->close(fd);
        if (err != ENOENT && err != ECONNREFUSED && err != EAGAIN && err != EINTR)
            return manta_fail(MANTA_EIO, "no connection to unix:%s can be made: %s", path, strerror(err));
        if (clock_now_ns() >= deadline)
            return manta_fail(MANTA_ETIMEDOUT, "rank %d waited %lld ms at unix:%s; missing: rank 0", rank,
                              (long long)timeout_ms, path);
        (void)socket_poll(NULL, 0, TRY_MS); /* there is nothing to be woken by before rank 0 listens */
    }
}

static manta_status request_memory(const char *path, int fd, int rank, const shm_head *h, int64_t deadline,
                                   int *memory)
{
    local_hello mine = {.magic = SHM_MAGIC, .version = SHM_VERSION, .rank = (uint32_t)rank, .head = *h};
    local_answer a;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int fds[SOCKET_MAX_FDS], n_fds = 0;
    size_t n;

    TRY(check_peer(fd));
    TRY(socket_send(fd, &mine, sizeof mine, NULL, 0, true));
    if (socket_poll(&p, 1, clock_left_ms(deadline)) <= 0)
        return manta_fail(MANTA_ETIMEDOUT, "rank 0 at unix:%s did not answer in time", path);
    TRY(socket_recv(fd, &a, sizeof a, &n, fds, &n_fds, false));
    if (n != sizeof a || a.magic != SHM_MAGIC || a.error.code || n_fds != 1) {
        socket_close_all(fds, n_fds);
        if (n != sizeof a || a.magic != SHM_MAGIC || !a.error.code)
            return manta_fail(MANTA_ECORRUPT, "the answer at unix:%s is not that of a rank 0 of this version",
                              path);
        return manta_error_raise(&a.error);
    }
    *memory = fds[0];
    return MANTA_OK;
}

static manta_status join_as_guest(const char *path, int rank, const shm_head *h, shm **out)
{
    int64_t deadline = clock_deadline(h->join_timeout_ms);
    int fd = -1, memory = -1;

    TRY(connect_host(path, rank, deadline, h->join_timeout_ms, &fd));
    manta_status st = request_memory(path, fd, rank, h, deadline, &memory);
    os->close(fd);
    if (st) return st;
    st = shm_group_join(memory, rank, out);
    os->close(memory);
    return st;
}

manta_status rendezvous_local(const char *path, int rank, int size, const manta_group_options *o, shm **out)
{
    shm_head h;

    memset(&h, 0, sizeof h); /* it is compared as bytes */
    shm_head made = shm_head_of(size, o);
    memcpy(&h, &made, sizeof h);
    return rank == 0 ? join_as_host(path, &h, out) : join_as_guest(path, rank, &h, out);
}
