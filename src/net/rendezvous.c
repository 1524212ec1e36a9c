/* rendezvous.c - see rendezvous.h. The rules are rendezvous_policy.c's; here are the
 * connections that they rule.
 *
 *   node.c    CALLED: on its way; HERE: open; else NULL. TAKEN is a flag of its own, for
 *             a node may come anew while somebody still has its former connection.
 *   lobby     in the order of arrival. Who becomes open leaves it in the same pass. */
#include "net/rendezvous_inner.h"

#include "net/chan_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/sys.h"

enum { PARTING_MS = 2000 }; /* for what is said at the end of a meeting that has failed */

/* ---- nodes ---- */

int rendezvous_find(const rendezvous *r, const char *name)
{
    for (int i = 0; i < r->n; i++) {
        if (!strcmp(r->nodes[i].name, name)) return i;
    }
    return -1;
}

static void drop_connection(node *n)
{
    chan_close(n->c);
    n->c = NULL;
    n->here = n->begun = n->greeted = n->closing = false;
}

/* Whether something is still to be said or heard on the node's connection in a meeting. */
static bool is_greeting(const rendezvous *r, const node *n)
{
    int i = (int)(n - r->nodes);

    return n->here && i >= r->greet_first && i < r->greet_end && (!n->greeted || chan_unsent(n->c));
}

void rendezvous_note_why(node *n, const chan *c)
{
    const char *name = c ? chan_name(c) : "";
    size_t skip = strlen(name);

    manta_error_get(&n->why);
    if (skip && !strncmp(n->why.text, name, skip) && !strncmp(n->why.text + skip, ": ", 2))
        memmove(n->why.text, n->why.text + skip + 2, strlen(n->why.text + skip + 2) + 1);
}

/* The call, or the connection, has come to nothing: because of the thread's last error. */
static void note_failure(node *n)
{
    rendezvous_note_why(n, n->c);
    if (n->why.code == MANTA_ETIMEDOUT) n->tries = 0; /* that was pause enough */
    n->again_ns = clock_deadline(rendezvous_pause_ms(n->tries++));
    if (n->c) rendezvous_note_silence(n, n->c);
    drop_connection(n);
}

/* An open connection of a node, whichever way it came. */
void rendezvous_arrive(rendezvous *r, node *n, chan *c)
{
    for (int i = 0; i < r->n; i++) /* where one comes from others may be reached again */
        r->nodes[i].again_ns = r->nodes[i].tries = 0;
    if (n->c != c) drop_connection(n);
    n->c = c;
    rendezvous_trust(n);
    n->here = true;
    n->unfit = n->told = false;
    n->tries = 0;
    n->why = (manta_error){.code = MANTA_OK};
}

manta_status rendezvous_fail_claim(const rendezvous *r, rendezvous_verdict v, const char *name)
{
    if (v == RENDEZVOUS_UNKNOWN) return manta_fail(MANTA_EPERM, "this %s has no %s", r->what, name);
    if (v == RENDEZVOUS_BACKWARDS)
        return manta_fail(MANTA_EPERM, "%s called, and in this %s it is called itself", name, r->what);
    return manta_fail(MANTA_EPERM, "%s of this %s is here already", name, r->what);
}

/* When a hello is read it is not known which way its connection came; that is looked at
 * in the lobby. */
static manta_status check_hello(void *ctx, const hello *theirs)
{
    rendezvous *r = ctx;
    int i = rendezvous_find(r, theirs->node);
    const node *n = i < 0 ? NULL : &r->nodes[i];
    rendezvous_claim claim = {
        .known = n != NULL, .there = n && !n->called && (n->here || n->taken), .once = r->once};
    rendezvous_verdict v = rendezvous_judge(claim);

    if (v != RENDEZVOUS_ADMIT && v != RENDEZVOUS_REPLACE) return rendezvous_fail_claim(r, v, theirs->node);
    return r->check ? r->check(r->ctx, i, theirs) : MANTA_OK;
}

/* ---- calling ---- */

static void call_node(rendezvous *r, node *n)
{
    tcp_place where;

    if (tcp_resolve(n->address, &where) || chan_connect(r->end, &where, n->name, &n->c)) note_failure(n);
}

static void tend_nodes(rendezvous *r)
{
    for (int i = 0; i < r->n; i++) {
        node *n = &r->nodes[i];
        if (!n->c || n->here) continue;
        if (chan_work(n->c)) {
            note_failure(n);
        } else if (chan_is_open(n->c)) {
            rendezvous_arrive(r, n, n->c);
        }
    }
}

/* ---- waiting ---- */

static void make_room(rendezvous *r, int n, int n_fds)
{
    int items = n + r->room + r->n, fds = n_fds + 1 + r->n;

    if (items > r->n_items) r->items = mem_resize(r->items, sizeof *r->items * (size_t)items);
    if (fds > r->n_fds) r->fds = mem_resize(r->fds, sizeof *r->fds * (size_t)fds);
    if (items > r->n_items) r->n_items = items;
    if (fds > r->n_fds) r->n_fds = fds;
}

/* A node that is here and has nothing to say is watched for its end alone: what it sends
 * is for whoever takes it. */
static struct pollfd watch_end(const rendezvous *r, const node *n)
{
    bool watched = n->here && !n->closing && !is_greeting(r, n);

    return (struct pollfd){.fd = watched ? chan_fd(n->c) : -1, .events = POLLRDHUP};
}

static void notice_ends(rendezvous *r, const struct pollfd *ends)
{
    for (int i = 0; i < r->n; i++) {
        node *n = &r->nodes[i];
        if (ends[i].fd < 0 || !ends[i].revents) continue;
        n->closing = true;
        if (chan_look(n->c)) note_failure(n);
    }
}

/* Who is here is not waited on, and wants to hear of us all the same. One that has closed its end
 * is left alone: what it sent last is for whoever takes it. */
static void tend_here(rendezvous *r)
{
    for (int i = 0; i < r->n; i++) {
        node *n = &r->nodes[i];
        if (!n->here || n->closing) continue;
        chan_tend(n->c);
        if (chan_work(n->c)) note_failure(n);
    }
}

manta_status rendezvous_wait(rendezvous *r, chan_item *items, int n, struct pollfd *fds, int n_fds,
                             int64_t deadline)
{
    bool rests = clock_now_ns() < r->listen_ns;
    struct pollfd *listener;
    manta_status st;
    int k = 0;

    make_room(r, n, n_fds);
    tend_here(r);
    for (int i = 0; i < n; i++) r->items[k++] = items[i];
    for (int i = 0; i < r->n_lobby; i++) r->items[k++] = (chan_item){.c = r->lobby[i]};
    for (int i = 0; i < r->n; i++) {
        const node *o = &r->nodes[i];
        bool greeting = is_greeting(r, o);
        r->items[k++] = (chan_item){.c = o->here && !greeting ? NULL
                                         : o->c               ? o->c
                                                              : o->probe,
                                    .read = greeting && !o->greeted};
        r->fds[n_fds + 1 + i] = watch_end(r, o);
    }
    for (int i = 0; i < n_fds; i++) r->fds[i] = fds[i];
    listener = &r->fds[n_fds];
    *listener = (struct pollfd){.fd = rests ? -1 : r->listener, .events = POLLIN};
    if (rests && r->listen_ns < deadline) deadline = r->listen_ns;
    st = chan_wait(r->items, k, r->fds, n_fds + 1 + r->n, deadline);
    for (int i = 0; i < n; i++) items[i].ready = r->items[i].ready;
    for (int i = 0; i < n_fds; i++) fds[i].revents = r->fds[i].revents;
    notice_ends(r, listener + 1);
    if (listener->revents) rendezvous_accept(r);
    rendezvous_tend_lobby(r);
    tend_nodes(r);
    return st;
}

void rendezvous_note(rendezvous *r, uint32_t note)
{
    for (int i = 0; i < r->n; i++) {
        if (r->nodes[i].here) chan_set_note(r->nodes[i].c, note);
    }
}

bool rendezvous_is_here(const rendezvous *r, int i)
{
    return r->nodes[i].here;
}

chan *rendezvous_take(rendezvous *r, int i)
{
    node *n = &r->nodes[i];
    chan *c = n->c;

    if (!n->here) return NULL;
    n->c = NULL;
    n->here = n->begun = n->greeted = n->closing = false;
    n->taken = true;
    return c;
}

void rendezvous_miss(rendezvous *r, int i)
{
    if (i != r->self) r->nodes[i].taken = false;
}

/* ---- meeting ---- */

/* Whether the node is one that a meeting waits for. */
static bool is_missing(const rendezvous *r, const node *n)
{
    return !n->taken && (!n->here || is_greeting(r, n));
}

int rendezvous_missing(const rendezvous *r, int first, int end, buf *out)
{
    int missing = -1, here = 0;

    buf_cut(out, 0);
    for (int i = first; i < end; i++) {
        const node *n = &r->nodes[i];
        if (!is_missing(r, n)) continue;
        if (missing < 0) missing = i;
        if (out->n > 300) continue;
        buf_printf(out, "%s%s (%s%s%.200s)", out->n ? ", " : "waiting for ", n->name,
                   n->address ? n->address : "its address is not known", n->why.code ? ": " : "",
                   n->why.code ? n->why.text : "");
    }
    for (int i = first; i < end; i++) {
        if (i == r->self || is_missing(r, &r->nodes[i]) || out->n > 600) continue;
        buf_printf(out, "%s%s", here++ ? ", " : "; here are ", r->nodes[i].name);
    }
    return missing;
}

static manta_status greet_node(rendezvous *r, int i, const rendezvous_meeting *m)
{
    node *n = &r->nodes[i];
    bool done = false;
    manta_status st;

    if (!is_greeting(r, n)) return MANTA_OK;
    st = n->greeted ? chan_work(n->c) : m->greet(m->ctx, i, n->c, !n->begun, &done);
    n->begun = true;
    n->greeted |= !st && done;
    if (!st || done || (rendezvous_is_final(st, n->called) && !m->patient)) return st;
    note_failure(n);
    return MANTA_OK;
}

/* Whether a strict meeting waits for the node in vain: it fails then. */
static manta_status judge_strictly(const node *n)
{
    if (n->here || n->taken) return MANTA_OK;
    if (n->told) return manta_error_raise(&n->why);
    if (n->unfit && !n->c)
        return manta_fail(MANTA_EPERM, "%s (%s): %s", n->name, n->address ? n->address : "", n->why.text);
    return rendezvous_check_key(n);
}

/* Fails when a strict meeting has come to nothing: of one node at least nothing is to be hoped, and
 * nobody else is missing. Until then it goes on, so that those who come later find out too. */
static manta_status judge_meeting(const rendezvous *r, int first, int end)
{
    manta_status st = MANTA_OK;
    manta_error why;

    for (int i = first; i < end; i++) {
        const node *n = &r->nodes[i];
        manta_status now = judge_strictly(n);
        if (!now && is_missing(r, n)) return MANTA_OK;
        if (!now || st) continue;
        manta_error_get(&why);
        st = now;
    }
    return st ? manta_error_raise(&why) : MANTA_OK;
}

/* A node that leaves a strict meeting because one is refused has nothing else to say: the meeting goes on
 * until nobody else is missing. */
static manta_status hear_last_words(node *n, int i, const rendezvous_meeting *m)
{
    manta_status st = m->last_words(m->ctx, i, n->c);

    if (st != MANTA_EPERM || !m->strict) return st;
    manta_error_get(&n->why);
    n->unfit = n->told = true;
    drop_connection(n);
    return MANTA_OK;
}

/* A node that we call does not want us, or we not it: before it is called again. */
static manta_status judge_refusal(node *n, const rendezvous_meeting *m)
{
    if (n->c || m->patient || !rendezvous_is_final(n->why.code, n->called)) return MANTA_OK;
    if (!m->strict)
        return manta_fail(n->why.code, "%s (%s): %s", n->name, n->address ? n->address : "", n->why.text);
    n->unfit = true; /* whoever is still to come finds out too: judge_meeting() */
    return MANTA_OK;
}

/* One look at a node: calls it when that is due, greets it, and fails when there is no
 * point in waiting for it. *wake: when to look again at the latest. */
static manta_status attend_node(rendezvous *r, int i, const rendezvous_meeting *m, int64_t *wake)
{
    node *n = &r->nodes[i];

    if (n->taken) return MANTA_OK;
    TRY(judge_refusal(n, m));
    if (!n->c && n->called && n->address && !n->unfit && clock_now_ns() >= n->again_ns) call_node(r, n);
    TRY(greet_node(r, i, m));
    if (n->closing && n->here && n->greeted && m->last_words) TRY(hear_last_words(n, i, m));
    TRY(judge_refusal(n, m));
    if (!n->c && n->called && n->address && !n->unfit && n->again_ns < *wake) *wake = n->again_ns;
    if (m->strict) rendezvous_probe(r, n, wake);
    return MANTA_OK;
}

static manta_status meet_nodes(rendezvous *r, int first, int end, const rendezvous_meeting *m, buf *missing)
{
    int64_t begin = clock_now_ns(), deadline = clock_deadline(m->timeout_ms);

    for (;;) {
        int64_t wake = clock_deadline(RENDEZVOUS_TICK_MS), now;
        int who;
        for (int i = first; i < end; i++) TRY(attend_node(r, i, m, &wake));
        if (m->strict) TRY(judge_meeting(r, first, end));
        if ((who = rendezvous_missing(r, first, end, missing)) < 0) return MANTA_OK;
        now = clock_now_ns();
        if (now >= deadline)
            return manta_fail(MANTA_ETIMEDOUT, "not all of this %s have come in %.0f s: %s", r->what,
                              (double)(now - begin) / 1e9, buf_text(missing));
        if (m->watch) TRY(m->watch(m->ctx, buf_text(missing), who, (double)(now - begin) / 1e6));
        (void)rendezvous_wait(r, NULL, 0, NULL, 0, wake < deadline ? wake : deadline);
    }
}

/* Lets the caller say why the meeting has failed, and sends it as far as that goes. */
static void part_nodes(rendezvous *r, int first, int end, const rendezvous_meeting *m)
{
    int64_t deadline = clock_deadline(PARTING_MS);
    manta_error why;

    manta_error_get(&why);
    for (int i = first; i < end; i++) {
        if (r->nodes[i].here) m->part(m->ctx, i, r->nodes[i].c);
    }
    for (int i = first; i < end; i++) {
        node *n = &r->nodes[i];
        while (n->here && !chan_work(n->c) && chan_unsent(n->c)) {
            chan_item item = {.c = n->c};
            if (chan_wait(&item, 1, NULL, 0, deadline)) break;
        }
    }
    (void)!manta_error_raise(&why);
}

manta_status rendezvous_meet(rendezvous *r, int first, int end, const rendezvous_meeting *m)
{
    buf missing = {0};
    manta_status st;

    r->greet_first = first;
    r->greet_end = m->greet ? end : first;
    for (int i = first; i < end; i++) {
        node *n = &r->nodes[i];
        n->begun = n->greeted = n->unfit = n->told = false;
        if (rendezvous_is_final(n->why.code, n->called)) n->again_ns = 0;
        n->why = (manta_error){.code = MANTA_OK};
    }
    st = meet_nodes(r, first, end, m, &missing);
    if (st && m->part) part_nodes(r, first, end, m);
    r->greet_first = r->greet_end = 0;
    for (int i = first; i < end; i++) { /* whom nobody attends to any more */
        if (!r->nodes[i].here || (st && r->nodes[i].begun)) drop_connection(&r->nodes[i]);
        rendezvous_trust(&r->nodes[i]);
    }
    buf_release(&missing);
    return st;
}

/* ---- life ---- */

manta_status rendezvous_listen(rendezvous *r, const char *address, bool inherit, int *port)
{
    const char *held = inherit ? getenv("MANTA_LISTEN_FD") : NULL;
    tcp_place at;

    if (held) {
        TRY(chan_inherit(r->end, address, held, &r->listener));
    } else {
        TRY(tcp_resolve(address, &at));
        TRY(chan_listen(r->end, &at, &r->listener));
    }
    return port ? tcp_port(r->listener, port) : MANTA_OK;
}

void rendezvous_listen_with(rendezvous *r, int fd)
{
    r->listener = fd;
    r->lent = true;
}

void rendezvous_say(rendezvous *r, uint64_t generation, const void *word, size_t n)
{
    chan_end_say(r->end, generation, word, n);
}

manta_status rendezvous_settle(rendezvous *r, const char *profile, uint64_t max_frame)
{
    return chan_end_settle(r->end, profile, max_frame);
}

void rendezvous_set_address(rendezvous *r, int i, const char *address)
{
    mem_free(r->nodes[i].address);
    r->nodes[i].address = mem_strdup(address);
}

chan_end *rendezvous_take_end(rendezvous *r)
{
    chan_end *e = r->end;

    r->end = NULL;
    return e;
}

manta_status rendezvous_new(const rendezvous_options *o, rendezvous **out)
{
    rendezvous *r = mem_new(sizeof *r);
    chan_options c = o->chan;
    manta_status st;

    snprintf(r->what, sizeof r->what, "%s", o->what);
    snprintf(r->job, sizeof r->job, "%s", o->chan.job);
    r->once = o->once;
    r->check = o->check;
    r->ctx = o->ctx;
    r->listener = r->self = -1;
    r->n = o->n;
    r->nodes = mem_new(sizeof *r->nodes * (size_t)(o->n + !o->n));
    r->room = RENDEZVOUS_LOBBY;
    for (int i = 0; i < o->n; i++) {
        node *n = &r->nodes[i];
        snprintf(n->name, sizeof n->name, "%s", o->nodes[i].name);
        n->called = o->nodes[i].called;
        if (!strcmp(n->name, o->chan.node)) {
            n->taken = true;
            r->self = i;
        }
        r->room += !n->called && !n->taken;
        if (o->nodes[i].address) n->address = mem_strdup(o->nodes[i].address);
    }
    r->lobby = mem_new(sizeof *r->lobby * (size_t)r->room);
    c.check = check_hello;
    c.ctx = r;
    if ((st = chan_end_new(&c, o->key, &r->end))) {
        rendezvous_free(r);
        return st;
    }
    *out = r;
    return MANTA_OK;
}

void rendezvous_close_descriptors(const rendezvous *r)
{
    for (int i = 0; i < r->n_lobby; i++) os->close(chan_fd(r->lobby[i]));
    for (int i = 0; i < r->n; i++) {
        if (r->nodes[i].c) os->close(chan_fd(r->nodes[i].c));
        if (r->nodes[i].probe) os->close(chan_fd(r->nodes[i].probe));
    }
    if (r->listener >= 0) os->close(r->listener);
}

void rendezvous_free(rendezvous *r)
{
    if (!r) return;
    for (int i = 0; i < r->n_lobby; i++) chan_close(r->lobby[i]);
    rendezvous_say_turned(r, NULL);
    for (int i = 0; i < r->n; i++) {
        chan_close(r->nodes[i].probe);
        chan_close(r->nodes[i].c);
        mem_free(r->nodes[i].address);
    }
    if (r->listener >= 0 && !r->lent) os->close(r->listener);
    chan_end_free(r->end);
    mem_free(r->nodes);
    mem_free(r->lobby);
    mem_free(r->items);
    mem_free(r->fds);
    mem_free(r);
}
