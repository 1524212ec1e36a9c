/* members.h - the processes that TF_CONFIG names, on loopback: each listens at a port that was free, is
 * told of all by its config, and is started again when it is killed, as whoever started it would. */
#ifndef TEST_MEMBERS_H
#define TEST_MEMBERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/cluster.h>

#include "net/tcp.h"
#include "ok.h"
#include "os/spawner.h"

enum { MEMBERS_MOST = 8 };

/* What a member knows of itself. */
typedef struct member {
    int rank; /* its index */
    int deaths; /* so many of all were killed before it was started */
    int listener; /* socket that listens at its address */
    char config[512]; /* its TF_CONFIG */
} member;

/* What a member does. It ends with _exit(), or by returning: that is an end without a fault. */
typedef void member_fn(void *user, const member *me);

typedef struct members {
    int n;
    member_fn *be;
    void *user;
    int alarm_s; /* a member that has not ended by then is a fault */
    /* The rest is members_run()'s. */
    member member[MEMBERS_MOST];
    spawn_child child[MEMBERS_MOST];
    int starting; /* rank of who is being started */
} members;

static inline void members_listen(members *m)
{
    char addresses[256] = "";

    for (int i = 0; i < m->n; i++) {
        tcp_place at;
        int port;
        assert_ok(tcp_resolve("127.0.0.1:0", &at));
        assert_ok(tcp_listen(&at, &m->member[i].listener));
        assert_ok(tcp_port(m->member[i].listener, &port));
        snprintf(addresses + strlen(addresses), sizeof addresses - strlen(addresses), "%s\"127.0.0.1:%d\"",
                 i ? "," : "", port);
    }
    for (int i = 0; i < m->n; i++) {
        m->member[i].rank = i;
        snprintf(m->member[i].config, sizeof m->member[i].config,
                 "{\"cluster\":{\"worker\":[%s]},\"task\":{\"type\":\"worker\",\"index\":%d}}", addresses, i);
    }
}

/* manta_cluster_open() in a member. */
static inline manta_status member_open_cluster(const member *me, manta_cluster_options o, manta_cluster **out)
{
    char fd[16];

    snprintf(fd, sizeof fd, "%d", me->listener);
    setenv("MANTA_LISTEN_FD", fd, 1);
    o.tf_config = me->config;
    return manta_cluster_open(&o, out);
}

static inline void members_be(void *ctx)
{
    members *m = ctx;

    alarm((unsigned)m->alarm_s);
    m->be(m->user, &m->member[m->starting]);
}

static inline void members_start(members *m, int rank)
{
    m->starting = rank;
    assert_ok(
        spawn_start(&(spawn_options){.run = members_be, .ctx = m, .dies_with_parent = true, .flush = true},
                    &m->child[rank]));
}

/* A member whose process has ended; all wait. */
static inline int members_wait(const members *m)
{
    struct pollfd p[MEMBERS_MOST];

    for (;;) {
        for (int i = 0; i < m->n; i++) p[i] = (struct pollfd){.fd = spawn_fd(&m->child[i]), .events = POLLIN};
        if (poll(p, (nfds_t)m->n, -1) < 1) continue; /* a signal */
        for (int i = 0; i < m->n; i++)
            if (p[i].revents) return i;
    }
}

/* Starts all, starts again whoever is killed, and returns when all have ended: how many were killed. */
static inline int members_run(members *m)
{
    int living = m->n, deaths = 0;

    assert_in_range(m->n, 1, MEMBERS_MOST);
    members_listen(m);
    for (int i = 0; i < m->n; i++) members_start(m, i);
    while (living) {
        int rank = members_wait(m), status = spawn_wait(&m->child[rank]);
        char text[64];
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
            m->member[rank].deaths = ++deaths;
            members_start(m, rank);
            continue;
        }
        if (status) fail_msg("rank %d %s", rank, spawn_status_text(status, text, sizeof text));
        living--;
    }
    for (int i = 0; i < m->n; i++) close(m->member[i].listener);
    return deaths;
}

#endif
