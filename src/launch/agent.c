/* agent.c - see agent.h. */
#include "launch/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/tool_launch.h>
#include <manta/tool_text.h>
#include <manta/version.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/vec.h"
#include "launch/ask.h"
#include "os/descendants.h"
#include "os/sys.h"

enum { FULL = 1 << 20, KEY_TEXT = 64, MOST_RANKS = 4096, ASK_MS = 10000, LAST_WORDS_MS = 2000 };

/* Tells the launcher why nothing can be started here; it ends the launch. */
static void tell_failure(agent *a, const char *step, const char *remedy)
{
    char *what = mem_strdup(manta_error_text());

    talk_post_json(
        &a->t, TALK_FAILED,
        json_pack("{s:s, s:s, s:s}", "step", step, "what", manta_printable(what, ""), "remedy", remedy));
    mem_free(what);
}

/* Says that this host is alive where something takes longer than a step of the loop. */
static void keep_in_touch(agent *a)
{
    if (clock_now_ns() < a->pulse) return;
    a->pulse = clock_deadline(talk_pulse_ms(a->lease_ns / 1000000));
    if (!talk_waiting(&a->t)) talk_post(&a->t, TALK_PULSE, NULL, 0);
    (void)!talk_write(&a->t); /* the loop notices */
}

/* ---- what the launcher says ---- */

static manta_status take_setup(agent *a, const json_t *v)
{
    const char *job, *name;
    int lease_ms, grace_ms, first, count, only, port;
    char host[ADDRESS_TEXT];
    json_error_t why;

    if (json_unpack_ex((json_t *)(uintptr_t)v, &why, 0, "{s:s, s:s, s:i, s:i, s:i, s:i, s:b, s:i}", "job",
                       &job, "name", &name, "lease_ms", &lease_ms, "grace_ms", &grace_ms, "first", &first,
                       "count", &count, "only", &only, "port", &port))
        return manta_fail(MANTA_ECORRUPT, "setup: %s", why.text);
    if (a->job || lease_ms < 1 || grace_ms < 0 || first < 0 || count < 1 || count > MOST_RANKS ||
        first > MOST_RANKS - count || port < 0 || port > 65535 - count)
        return manta_fail(MANTA_ECORRUPT,
                          "setup: the launcher asks for %d ranks from %d on, with a lease of %d ms, a grace "
                          "of %d ms and ports from %d on: expected this once, and at most %d ranks",
                          count, first, lease_ms, grace_ms, port, MOST_RANKS);
    a->job = mem_strdup(job);
    a->lease_ns = lease_ms * 1000000LL;
    a->pulse = 0; /* the next one may have to come sooner */
    a->grace_ms = grace_ms;
    if (address_find(name, only, host)) {
        tell_failure(a, "address", "name the host by an address that the other hosts reach it by");
        return MANTA_OK;
    }
    a->host = mem_strdup(host);
    if (agent_take_ports(a, first, count, port)) {
        tell_failure(a, "ports",
                     port ? "nothing else in this pod may listen at these ports"
                          : "try once more: another launch tries other ports");
        return MANTA_OK;
    }
    json_t *list = json_array();
    for (int i = 0; i < a->n; i++) json_array_append_new(list, json_string(a->ranks[i].address));
    talk_post_json(&a->t, TALK_PORTS, json_pack("{s:o}", "addresses", list));
    return MANTA_OK;
}

/* The key goes to a file without a name, as key_read() takes it. */
static manta_status take_key(agent *a, const talk_message *m)
{
    if (m->n != KEY_TEXT || a->key >= 0)
        return manta_fail(MANTA_ECORRUPT, "the launcher sent a key of %zu bytes: expected one, of %d bytes",
                          m->n, KEY_TEXT);
    a->key = os->memfd_create("manta-key", MFD_CLOEXEC);
    if (a->key < 0 || os->fchmod(a->key, 0600) || os->write(a->key, m->data, m->n) != (ssize_t)m->n) {
        (void)!manta_fail(MANTA_EIO, "the key cannot be kept: %s", strerror(errno));
        tell_failure(a, "key", "it needs a file in memory (memfd_create), which Linux has from 3.17 on");
    }
    return MANTA_OK;
}

static manta_status check_others(agent *a, const json_t *v)
{
    json_t *list = json_object_get(v, "addresses"), *address;
    int half_ms = (int)(a->lease_ns /
                        2000000); /* an answer after the lease would come from one who is taken for dead */
    size_t i;

    json_array_foreach(list, i, address)
    {
        if (!json_is_string(address))
            return manta_fail(
                MANTA_ECORRUPT,
                "the launcher sent address %zu of the other hosts as something else than a text", i);
        keep_in_touch(a);
        if (ask_address(json_string_value(address), half_ms < ASK_MS ? half_ms : ASK_MS)) {
            tell_failure(
                a, "route",
                "the hosts must reach each other at TCP ports 20000 to 31999: see their firewalls, or name "
                "them by addresses of a network that they share");
            return MANTA_OK;
        }
    }
    talk_post(&a->t, TALK_CHECKED, NULL, 0);
    return MANTA_OK;
}

static bool all_texts(const json_t *list)
{
    const json_t *v;
    size_t i;

    json_array_foreach(list, i, v)
    {
        if (!json_is_string(v)) return false;
    }
    return json_array_size(list) > 0;
}

static bool all_values_texts(json_t *object)
{
    const char *name;
    json_t *v;

    json_object_foreach(object, name, v)
    {
        if (!json_is_string(v) || strchr(name, '=')) return false;
    }
    return json_is_object(object);
}

static void start_rank(agent *a, agent_rank *r)
{
    const char *folder = json_string_value(json_object_get(a->go, "folder"));

    manta_status st = MANTA_OK;

    if (access(folder, X_OK)) {
        (void)!manta_fail(MANTA_ENOENT, "the folder %s cannot be worked in: %s", folder, strerror(errno));
        tell_failure(a, "folder",
                     "the folder of the launch must be there on every host, or --folder names one that is");
    } else if (!(st = agent_start_rank(a, r))) {
        return;
    } else if (st == MANTA_ENOENT || st == MANTA_EPERM) {
        tell_failure(a, "program", "the program must be at the same place on every host");
    } else {
        tell_failure(
            a, "program",
            "see the limits of the host: open files (ulimit -n), of which a process takes four, processes "
            "(ulimit -u), and the size of arguments and environment");
    }
    talk_post_json(&a->t, TALK_ENDED,
                   json_pack("{s:i, s:i}", "rank", r->number, "status", W_EXITCODE(127, 0)));
}

static manta_status take_go(agent *a, json_t *v)
{
    if (a->go || a->key < 0 || !a->n || !all_texts(json_object_get(v, "argv")) ||
        !all_texts(json_object_get(v, "cluster")) || !all_values_texts(json_object_get(v, "variables")) ||
        !json_is_string(json_object_get(v, "folder")) || !json_is_integer(json_object_get(v, "base")))
        return manta_fail(MANTA_ECORRUPT,
                          "the launcher said what to run and part of it is missing or wrong: expected, after "
                          "setup and key, once: argv, cluster, variables, folder and base");
    a->go = json_incref(v);
    agent_drain_ports(a);
    for (int i = 0; i < a->n; i++) {
        keep_in_touch(a);
        start_rank(a, &a->ranks[i]);
    }
    return MANTA_OK;
}

static manta_status start_again(agent *a, const json_t *v)
{
    int number = (int)json_integer_value(json_object_get(v, "rank"));

    for (int i = 0; i < a->n; i++) {
        if (a->ranks[i].number != number || a->ranks[i].child.pid || !a->go) continue;
        start_rank(a, &a->ranks[i]);
        return MANTA_OK;
    }
    return manta_fail(MANTA_ECORRUPT,
                      "the launcher has rank %d started again: expected one of this host that has ended",
                      number);
}

/* Ranks are asked to end, or told; those that have not by the deadline are killed. */
static void end_ranks(agent *a, int number)
{
    agent_signal_ranks(a, number);
    if (a->deadline == CLOCK_NEVER && number != SIGKILL) a->deadline = clock_deadline(a->grace_ms);
}

static manta_status heed_json(agent *a, talk_kind kind, json_t *v)
{
    int number;

    switch (kind) {
    case TALK_SETUP: return take_setup(a, v);
    case TALK_CHECK: return check_others(a, v);
    case TALK_GO: return take_go(a, v);
    case TALK_AGAIN: return start_again(a, v);
    default: break; /* TALK_SIGNAL */
    }
    number = (int)json_integer_value(json_object_get(v, "number"));
    if (number != SIGTERM && number != SIGINT && number != SIGKILL)
        return manta_fail(MANTA_ECORRUPT,
                          "the launcher sends signal %d to the ranks: expected SIGTERM, SIGINT or SIGKILL",
                          number);
    end_ranks(a, number);
    return MANTA_OK;
}

static manta_status heed_message(agent *a, const talk_message *m)
{
    json_t *v;
    manta_status st;

    switch (m->kind) {
    case TALK_PULSE: return MANTA_OK;
    case TALK_BYE: a->bye = true; return MANTA_OK;
    case TALK_KEY: return take_key(a, m);
    case TALK_SETUP:
    case TALK_CHECK:
    case TALK_GO:
    case TALK_AGAIN:
    case TALK_SIGNAL: break;
    default:
        return manta_fail(MANTA_ECORRUPT,
                          "the launcher sent a message of kind %d, which an agent does not know", m->kind);
    }
    TRY(talk_json(m, &v));
    st = heed_json(a, m->kind, v);
    json_decref(v);
    return st;
}

/* ---- the loop ---- */

/* The launcher is gone, silent, or talks nonsense: ranks are ended as if it had asked. */
static void go_alone(agent *a)
{
    if (a->alone) return;
    a->alone = true;
    a->t.out = a->t.in = -1;
    end_ranks(a, SIGTERM);
}

static void heed_launcher(agent *a)
{
    talk_message m;
    bool found = true;

    if (talk_read(&a->t)) go_alone(a);
    while (!a->alone && found) {
        if (talk_next(&a->t, &m, &found) || (found && heed_message(a, &m))) {
            if (!a->alone) tell_failure(a, "messages", "the same version of Manta must be on every host");
            (void)!talk_write(&a->t);
            go_alone(a);
        }
    }
    if (a->t.ended) go_alone(a);
}

/* Somebody else than the launcher asks this host to end: pre-emption. The launcher is told, and asks all. */
static void heed_signal(agent *a)
{
    struct signalfd_siginfo s;

    if (os->read(a->signals, &s, sizeof s) != (ssize_t)sizeof s) return;
    a->asked = true;
    end_ranks(a, SIGTERM);
    talk_post_json(&a->t, TALK_ASKED, json_pack("{s:i}", "number", (int)s.ssi_signo));
}

static void tell_end(agent *a, agent_rank *r)
{
    int number = r->number, status = agent_bury_rank(a, r);

    talk_post_json(&a->t, TALK_ENDED, json_pack("{s:i, s:i}", "rank", number, "status", status));
}

static bool rank_runs(const agent *a)
{
    for (int i = 0; i < a->n; i++) {
        if (a->ranks[i].child.pid) return true;
    }
    return false;
}

typedef VEC(struct pollfd) pollfds;

static void add_fd(pollfds *p, int fd, short events)
{
    vec_push(p, (struct pollfd){.fd = fd, .events = events});
}

/* Waits until something happens, or a pulse is due. */
static void await_events(agent *a, pollfds *p)
{
    bool full = talk_waiting(&a->t) > FULL && !a->alone;
    int left = clock_left_ms(a->deadline), pulse_ms = talk_pulse_ms(a->lease_ns / 1000000);

    vec_clear(p);
    add_fd(p, a->t.in, POLLIN);
    add_fd(p, talk_waiting(&a->t) ? a->t.out : -1, POLLOUT);
    add_fd(p, a->signals, POLLIN);
    for (int i = 0; i < a->n; i++) {
        add_fd(p, spawn_fd(&a->ranks[i].child), POLLIN);
        add_fd(p, full ? -1 : a->ranks[i].pipes[0], POLLIN);
        add_fd(p, full ? -1 : a->ranks[i].pipes[1], POLLIN);
    }
    (void)os->poll(p->at, p->n, left < 0 || left > pulse_ms ? pulse_ms : left);
}

static void take_step(agent *a, pollfds *p)
{
    await_events(a, p);
    if (p->at[0].revents) heed_launcher(a);
    if (p->at[2].revents) heed_signal(a);
    for (int i = 0; i < a->n && (size_t)(5 + 3 * i) < p->n; i++) {
        agent_rank *r = &a->ranks[i];
        const struct pollfd *at = &p->at[3 + 3 * i];
        if (at[1].revents) agent_read_pipe(a, r, 0);
        if (at[2].revents) agent_read_pipe(a, r, 1);
        if (spawn_has_ended(&r->child)) tell_end(a, r);
    }
    if (clock_now_ns() >= a->deadline) {
        agent_signal_ranks(a, SIGKILL);
        a->deadline = CLOCK_NEVER;
    }
    /* Only where nothing has come: what was heeded may have taken longer than the lease, and more may wait. */
    if (!a->alone && !p->at[0].revents && clock_now_ns() - a->t.heard_ns > a->lease_ns) go_alone(a);
    keep_in_touch(a);
    if (talk_write(&a->t)) go_alone(a);
}

/* What is still to be sent is sent, if somebody reads it soon. */
static void send_rest(agent *a)
{
    int64_t deadline = clock_deadline(LAST_WORDS_MS);

    while (!a->alone && talk_waiting(&a->t) && clock_left_ms(deadline) > 0) {
        struct pollfd p = {.fd = a->t.out, .events = POLLOUT};
        if (os->poll(&p, 1, clock_left_ms(deadline)) > 0 && talk_write(&a->t)) return;
    }
}

void agent_run(agent *a)
{
    pollfds p = {0};

    talk_greet(&a->t);
    talk_post_json(&a->t, TALK_HELLO, json_pack("{s:s}", "version", MANTA_VERSION_TEXT));
    while (rank_runs(a) || !(a->bye || a->alone || a->asked)) take_step(a, &p);
    send_rest(a);
    vec_release(&p);
}

/* ---- the two processes ---- */

static manta_status open_signals(int *out)
{
    sigset_t mask;

    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    *out = os->signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out < 0 ? manta_fail(MANTA_EIO, "signals cannot be read: %s", strerror(errno)) : MANTA_OK;
}

static void run_agent(void *ctx)
{
    agent a = {.key = -1, .deadline = CLOCK_NEVER, .lease_ns = 60 * 1000000000LL};

    (void)ctx;
    signal(SIGPIPE, SIG_IGN);
    if (open_signals(&a.signals)) _exit(1);
    proc_raise_files(RLIM_INFINITY, &a.files); /* four for each rank */
    talk_init(&a.t, 0, 1, false);
    agent_run(&a);
    _exit(0);
}

manta_status manta_agent(void)
{
    spawn_child child;

    TRY(descendants_adopt());
    spawn_ignore_requests();
    TRY(spawn_start(&(spawn_options){.run = run_agent,
                                     .name = "manta-agent",
                                     .signals = SPAWN_SIGNALS_RESET,
                                     .dies_with_parent = true},
                    &child));
    (void)spawn_wait(&child);
    descendants_end();
    return MANTA_OK;
}
