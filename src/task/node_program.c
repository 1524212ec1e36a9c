/* node_program.c - see node_program.h. */
#include "task/node_program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <manta/version.h>

#include "base/buf.h"
#include "base/log.h"
#include "os/proc.h"
#include "os/program.h"
#include "os/socket.h"
#include "os/spawner.h"
#include "os/sys.h"
#include "task/proto.h"

#define START_LIMIT_MS 20000

enum { ROLE_OWN = 1, ROLE_GUEST = 2 };

/* ---- where it is ---- */

/* Where it lies in a build tree and in a wheel, and in an installed tree whose libraries are in lib/ or
 * lib/TRIPLET/; from the folder of the library, or of the program that is linked with its parts. */
static const char *const places[] = {"", "/../libexec/manta", "/../../libexec/manta"};

static bool find_from(const char *file, char path[PATH_MAX])
{
    char folder[PATH_MAX];

    if (!realpath(file, folder)) return false;
    char *slash = strrchr(folder, '/');
    if (!slash) return false;
    *slash = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        int n = snprintf(path, PATH_MAX, "%s%s/manta-node", folder, places[i]);
        if (n < PATH_MAX && access(path, X_OK) == 0) return true;
    }
    return false;
}

static manta_status find_program(char path[PATH_MAX])
{
    const char *given = getenv("MANTA_NODE_PROGRAM");
    Dl_info library = {0};

    if (given && given[0]) {
        snprintf(path, PATH_MAX, "%s", given);
        return MANTA_OK;
    }
    if (dladdr(places, &library) && library.dli_fname && find_from(library.dli_fname, path)) return MANTA_OK;
    if (find_from("/proc/self/exe", path)) return MANTA_OK;
    return manta_fail(MANTA_ENOENT,
                      "the program manta-node is neither beside %s nor in libexec/manta of its tree, and the "
                      "environment variable MANTA_NODE_PROGRAM names none",
                      library.dli_fname ? library.dli_fname : "the library");
}

/* ---- the driver's side ---- */

static manta_status send_start(int fd, const node_config *c, int role, int given)
{
    buf b = {0};

    proto_begin(&b, PROTO_NODE);
    wire_put_u32(&b, PROTO_MAGIC);
    wire_put_u32(&b, PROTO_VERSION);
    wire_put_text(&b, MANTA_VERSION_TEXT);
    wire_put_u32(&b, (uint32_t)role);
    wire_put_u32(&b, (uint32_t)getpid());
    wire_put_bytes(&b, c, sizeof *c);
    wire_put_bytes(&b, c->nursery, c->n_nursery);
    manta_status st = socket_send(fd, b.at, b.n, &given, 1, true);
    buf_release(&b);
    return st;
}

static manta_status read_start(int fd, const char *path, int *keeper_pidfd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int fds[SOCKET_MAX_FDS], n_fds = 0;
    char in[1024], text[512];
    size_t n;

    if (socket_poll(&p, 1, START_LIMIT_MS) <= 0)
        return manta_fail(MANTA_ETIMEDOUT, "the program %s has said nothing for %d s", path,
                          START_LIMIT_MS / 1000);
    manta_status st = socket_recv(fd, in, sizeof in, &n, fds, &n_fds, true);
    if (st == MANTA_EDIED)
        return manta_fail(MANTA_EDIED, "the program %s ended before it had started the node", path);
    if (st) return st;
    wire w = wire_of(in, n);
    if (proto_kind_of(&w) == PROTO_HELLO && n_fds == 1) {
        *keeper_pidfd = fds[0];
        return MANTA_OK;
    }
    socket_close_all(fds, n_fds);
    st = (manta_status)wire_u32(&w);
    wire_text(&w, text, sizeof text);
    if (wire_end(&w, "refusal") || st <= MANTA_OK || st > MANTA_EINTERRUPTED)
        return manta_fail(MANTA_ECORRUPT, "the program %s has said what manta-node does not say", path);
    return manta_fail(st, "the program %s: %s", path, text);
}

/* Of one that has begun, but not as it should, nothing is to be left. */
static manta_status start_at(const char *path, const node_config *c, int role, int given, int *fd,
                             int *keeper_pidfd)
{
    char name[] = "manta-node", *const argv[] = {name, NULL};
    int pair[2];
    pid_t pid;

    TRY(socket_pair(pair));
    manta_status st = program_start_apart(path, argv, pair[1], &pid);
    socket_close_all(&pair[1], 1);
    if (!st) {
        st = send_start(pair[0], c, role, given);
        if (!st || st == MANTA_EDIED) st = read_start(pair[0], path, keeper_pidfd);
        if (st == MANTA_ETIMEDOUT) os->kill(pid, SIGKILL); /* it has the connection open, so it lives */
    }
    if (st)
        socket_close_all(&pair[0], 1);
    else
        *fd = pair[0];
    return st;
}

manta_status node_program_start(const node_config *c, int guest_fd, int *fd, int *keeper_pidfd)
{
    char path[PATH_MAX];
    int self = -1;
    bool own = guest_fd < 0;

    TRY(find_program(path));
    if (own) TRY(proc_pidfd_open(getpid(), &self));
    manta_status st = start_at(path, c, own ? ROLE_OWN : ROLE_GUEST, own ? self : guest_fd, fd, keeper_pidfd);
    socket_close_all(&self, 1);
    return st;
}

/* ---- the program's side ---- */

static int refuse_driver(manta_status st)
{
    buf b = {0};

    proto_begin(&b, PROTO_REFUSED);
    wire_put_u32(&b, (uint32_t)st);
    wire_put_text(&b, manta_error_text());
    (void)!socket_send(PROGRAM_FD, b.at, b.n, NULL, 0, true); /* who is gone need not know */
    buf_release(&b);
    log_error("manta-node cannot begin", LOG_STR("why", manta_error_text()));
    return 1;
}

typedef struct orders {
    uint32_t role;
    pid_t driver;
    int given;
    node_config config;
} orders;

/* The message stays in memory: the command of the nursery lies in it. */
static manta_status read_orders(orders *o)
{
    static char in[SOCKET_MAX_MESSAGE];
    int fds[SOCKET_MAX_FDS], n_fds = 0;
    char version[32];
    size_t n, size = 0;

    if (socket_recv(PROGRAM_FD, in, sizeof in, &n, fds, &n_fds, true))
        return manta_fail(MANTA_EINVAL, "this program is a part of Manta that manta_init() starts, and does "
                                        "nothing by itself");
    wire w = wire_of(in, n);
    proto_kind kind = proto_kind_of(&w);
    uint32_t magic = wire_u32(&w), protocol = wire_u32(&w);
    wire_text(&w, version, sizeof version);
    if (kind != PROTO_NODE || magic != PROTO_MAGIC)
        return manta_fail(MANTA_ECORRUPT, "the first message is no order to start a node");
    if (protocol != PROTO_VERSION || strcmp(version, MANTA_VERSION_TEXT) != 0)
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "it is of manta %s (protocol %u), the library of %s (protocol %u): they must be the "
            "same",
            MANTA_VERSION_TEXT, PROTO_VERSION, version, protocol);
    o->role = wire_u32(&w);
    o->driver = (pid_t)wire_u32(&w);
    const void *config = wire_bytes(&w, &size);
    if (!config || size != sizeof o->config)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "it is of another build than the library: its configuration has "
                          "%zu bytes, expected %zu",
                          size, sizeof o->config);
    memcpy(&o->config, config, size);
    o->config.nursery = wire_bytes(&w, &o->config.n_nursery);
    TRY(wire_end(&w, "order"));
    if (n_fds != 1 || o->config.n_nursery == 0 || o->config.nursery[o->config.n_nursery - 1])
        return manta_fail(MANTA_ECORRUPT,
                          "the order to start a node has %d descriptors, expected 1, or no "
                          "nursery",
                          n_fds);
    o->given = fds[0];
    return MANTA_OK;
}

/* A guest's keeper may outlive its driver, whose readers must see the end of its output all the same. */
static void leave_output(void)
{
    int fd = os->open("/dev/null", O_RDWR | O_CLOEXEC, 0);

    for (int i = 0; i < 3 && fd >= 0; i++) (void)dup2(fd, i);
    if (fd > 2) os->close(fd);
}

int node_program_main(void)
{
    orders o = {.given = -1};

    spawn_reset_signals();
    spawn_close_files((int[]){PROGRAM_FD}, 1);
    (void)os->fcntl(PROGRAM_FD, F_SETFD, FD_CLOEXEC);
    manta_status st = read_orders(&o);
    if (st) return refuse_driver(st);
    prctl(PR_SET_NAME, "manta-keeper");
    setsid();
    if (o.config.log_level >= MANTA_LOG_LEVEL_DEBUG && o.config.log_level <= MANTA_LOG_LEVEL_OFF)
        manta_log_set_level((manta_log_level)o.config.log_level);
    if (o.role == ROLE_OWN) node_keep(&o.config, PROGRAM_FD, o.driver, o.given);
    if (!o.config.plain_output) leave_output();
    node_keep_guest(&o.config, o.given, PROGRAM_FD);
}
