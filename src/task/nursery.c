/* nursery.c - see nursery.h: the start of a nursery, and what it does itself until it is ready. */
#include "task/nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <manta/nursery.h>
#include <manta/version.h>

#include "base/args.h"
#include "base/log.h"
#include "base/vec.h"
#include "os/proc.h"
#include "os/program.h"
#include "os/socket.h"
#include "os/sys.h"
#include "task/proto.h"
#include "task/rebuild.h"
#include "task/runtime.h"
#include "task/value.h"

#define VARIABLE "MANTA_NURSERY"

/* ---- commands ---- */

manta_status nursery_pack(const char *const *argv, buf *out)
{
    size_t begin = out->n;

    if (!argv[0] || !argv[0][0])
        return manta_fail(MANTA_EINVAL, "nursery names no program, expected its name and arguments");
    for (int i = 0; argv[i]; i++) {
        buf_add(out, argv[i], strlen(argv[i]) + 1);
        if (out->n - begin > NURSERY_COMMAND)
            return manta_fail(MANTA_EINVAL, "nursery has more than %d bytes of arguments, which is the most",
                              NURSERY_COMMAND);
    }
    return MANTA_OK;
}

void nursery_name(const node_config *c, char name[NURSERY_NAME])
{
    size_t n = c->n_nursery < NURSERY_NAME ? c->n_nursery : NURSERY_NAME;

    memset(name, 0, NURSERY_NAME);
    if (n == 0) return;
    memcpy(name, c->nursery, n - 1);
    for (size_t i = 0; i < n - 1; i++)
        if (!name[i]) name[i] = ' ';
}

/* ---- starting one ---- */

/* The settings that forks of the program would have from its memory. */
static manta_status send_settings(int fd, const node_config *c)
{
    buf b = {0};

    proto_begin(&b, PROTO_NURSERY);
    wire_put_u32(&b, PROTO_MAGIC);
    wire_put_u32(&b, PROTO_VERSION);
    wire_put_text(&b, MANTA_VERSION_TEXT);
    wire_put_u32(&b, c->plain_output);
    wire_put_u32(&b, (uint32_t)c->log_level);
    wire_put_u64(&b, c->lineage);
    wire_put_text(&b, c->space);
    manta_status st = socket_send(fd, b.at, b.n, NULL, 0, true);
    buf_release(&b);
    return st;
}

manta_status nursery_start(int parent_pidfd, const node_config *c, const struct rlimit *files, int *fd,
                           spawn_child *out)
{
    VEC(const char *) argv = {0};
    int pair[2];
    char where[32];

    TRY(socket_pair(pair));
    for (size_t at = 0; at < c->n_nursery; at += strlen(c->nursery + at) + 1)
        vec_push(&argv, c->nursery + at);
    vec_push(&argv, NULL);
    snprintf(where, sizeof where, "%d,%d", pair[1], parent_pidfd);
    manta_status st = program_start(argv.at, VARIABLE, where, files, (int[]){pair[1], parent_pidfd}, 2, out);
    vec_release(&argv);
    socket_close_all(&pair[1], 1);
    /* One that has ended already is seen by the end of its connection. */
    if (!st && (st = send_settings(pair[0], c)) == MANTA_EDIED) st = MANTA_OK;
    if (st) {
        spawn_signal(out, SIGKILL);
        socket_close_all(&pair[0], 1);
        return st;
    }
    *fd = pair[0];
    return MANTA_OK;
}

/* ---- being one ---- */

typedef struct settings {
    int fd, parent_pidfd;
    bool plain_output;
} settings;

/* Reads "FD,FD"; both are taken to be ours alone. */
static bool read_descriptors(const char *text, settings *s)
{
    char *end;
    long fd = strtol(text, &end, 10), parent = *end == ',' ? strtol(end + 1, &end, 10) : -1;

    if (*end || fd < 3 || fd > INT_MAX || parent < 3 || parent > INT_MAX) return false;
    s->fd = (int)fd;
    s->parent_pidfd = (int)parent;
    return !os->fcntl(s->fd, F_SETFD, FD_CLOEXEC) && !os->fcntl(s->parent_pidfd, F_SETFD, FD_CLOEXEC);
}

/* Finds the descriptors in the environment, where nobody else is to find them. */
static manta_status find_descriptors(settings *s)
{
    const char *text = getenv(VARIABLE);

    if (!text)
        return manta_fail(MANTA_EINVAL,
                          "this process was not started as a nursery: the environment has no "
                          "%s, which the node that starts one sets",
                          VARIABLE);
    if (!read_descriptors(text, s))
        return manta_fail(
            MANTA_EINVAL,
            "this process was not started as a nursery: %s is \"%.40s\", expected the numbers of "
            "two open descriptors",
            VARIABLE, text);
    unsetenv(VARIABLE);
    return MANTA_OK;
}

static manta_status refuse_version(const settings *s, const char *version, uint32_t protocol)
{
    buf b = {0};
    manta_status st =
        manta_fail(MANTA_EUNSUPPORTED,
                   "it has manta %s (protocol %u), and the program that started it %s (protocol "
                   "%u): they must be the same",
                   MANTA_VERSION_TEXT, PROTO_VERSION, version, protocol);

    proto_begin(&b, PROTO_REFUSED);
    wire_put_u32(&b, PROTO_MAGIC);
    wire_put_u32(&b, PROTO_VERSION);
    wire_put_text(&b, manta_error_text());
    (void)!socket_send(s->fd, b.at, b.n, NULL, 0, true); /* who is gone need not know */
    buf_release(&b);
    return st;
}

static manta_status take_settings(settings *s)
{
    char in[1024], version[32];
    int fds[SOCKET_MAX_FDS], n_fds;
    size_t n;

    TRY(socket_recv(s->fd, in, sizeof in, &n, fds, &n_fds, true));
    socket_close_all(fds, n_fds);
    wire w = wire_of(in, n);
    proto_kind kind = proto_kind_of(&w);
    uint32_t magic = wire_u32(&w), protocol = wire_u32(&w);
    wire_text(&w, version, sizeof version);
    if (kind != PROTO_NURSERY || magic != PROTO_MAGIC || w.broken)
        return manta_fail(MANTA_ECORRUPT, "the first message to this nursery is of kind %d, expected %d",
                          (int)kind, (int)PROTO_NURSERY);
    if (protocol != PROTO_VERSION || strcmp(version, MANTA_VERSION_TEXT) != 0)
        return refuse_version(s, version, protocol);
    s->plain_output = wire_u32(&w) != 0;
    uint32_t level = wire_u32(&w);
    rebuild_limit = (size_t)wire_u64(&w);
    wire_text(&w, rt_space, sizeof rt_space);
    TRY(wire_end(&w, "settings"));
    if (level <= MANTA_LOG_LEVEL_OFF) manta_log_set_level((manta_log_level)level);
    return MANTA_OK;
}

/* What stdio holds would be written by each worker, too. */
manta_status manta_nursery_run(void)
{
    settings s = {0};
    buf b = {0};

    TRY(find_descriptors(&s));
    TRY(take_settings(&s));
    node_has_threads = proc_threads() > 1;
    prctl(PR_SET_NAME, "manta-nursery");
    fflush(NULL);
    proto_begin(&b, PROTO_NURSERY);
    wire_put_u32(&b, PROTO_MAGIC);
    wire_put_u32(&b, PROTO_VERSION);
    wire_put_text(&b, MANTA_VERSION_TEXT);
    manta_status st = socket_send(s.fd, b.at, b.n, NULL, 0, true);
    buf_release(&b);
    if (st) return st;
    zygote_main(s.fd, s.parent_pidfd, s.plain_output, NULL);
}

/* ---- a warm one ---- */

manta_status manta_nursery_warm(const char *const *argv)
{
    REFUSE_NULL(argv);

    buf command = {0};
    reply r;

    if (!rt) return rt_none();
    manta_status st = nursery_pack(argv, &command);
    if (!st && rt->is_local)
        st = manta_fail(MANTA_EINVAL, "without other processes there are no workers, and no nursery of them");
    if (!st) {
        mutex_lock(&rt->lock);
        uint64_t request = rt_request_begin(PROTO_WARM);
        wire_put_bytes(&rt->out, command.at, command.n);
        st = rt->is_dead ? failure_raise(rt->death) : rt_request(request, &r);
        mutex_unlock(&rt->lock);
    }
    buf_release(&command);
    return st;
}
