/* cluster.c - opening a cluster from TF_CONFIG; the calls of fit and evaluate on it.
 *
 *   cluster_begin()        the others are met; c->at is where to go on
 *        |
 *        v        of each epoch
 *      TRAIN steps --> EVALUATE steps --> DECIDE --+--> TRAIN of the next
 *                                                  |
 *   cluster_end()    <-----------------------------+
 *        DONE to all, with a digest of the state; until all have said it, or one says that
 *        all have (ALL_DONE). With an error of ours: FAILED to all, and the sentence.
 *
 * c->at is (call, iterations, epoch, phase, step) and only ever grows: by the step that was
 * committed, by entering a phase, or to where the others are. A process that was lost
 * and comes back may so find itself in the middle of any phase (the engine asks
 * cluster_is_in() before each), or behind a call that the others have ended: then `over`.
 *
 * Until the end has been said by all nobody may leave: a rank that is lost in the last
 * step needs the state of one that has it. Meeting is cluster_rendezvous.c's, agreeing
 * cluster_sync.c's, computing cluster_step.c's. */
#include "train/cluster/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/sha256.h"
#include "train/session/lockstep.h"

enum { TIMEOUT_MS = 600000, FAREWELL_MS = 2000 };

CRASH_DEFINE(cluster, CLUSTER_CRASH_POINTS)

int64_t cluster_piece = 64; /* 1 MB */
cluster_echo cluster_echo_plan;

/* ---- opening ---- */

/* The job's name is made of who belongs to the cluster, so that all its processes come to the same one. */
static void name_job(manta_cluster *c)
{
    unsigned char sum[32];
    char text[65];
    sha256 h;

    sha256_init(&h);
    for (int r = 0; r < c->n; r++) {
        sha256_add(&h, c->peers[r].node, strlen(c->peers[r].node) + 1);
        sha256_add(&h, c->peers[r].address, strlen(c->peers[r].address) + 1);
    }
    sha256_final(&h, sum);
    sha256_text(sum, text);
    snprintf(c->job, sizeof c->job, "cluster-%.12s", text);
}

static void name_peers(manta_cluster *c)
{
    c->peers = mem_new((size_t)c->n * sizeof *c->peers);
    c->items = mem_new((size_t)c->n * sizeof *c->items);
    c->awaited = mem_new((size_t)c->n * sizeof *c->awaited);
    for (int r = 0; r < c->n; r++) {
        tf_job type;
        int index;
        tf_config_task(&c->config, r, &type, &index);
        snprintf(c->peers[r].node, sizeof c->peers[r].node, "%s/%d", tf_job_name(type), index);
        c->peers[r].address = c->config.address[type][index];
    }
}

/* Whether a rank was started for the same work. Before a training has begun that is looked at
 * when all are here, so that all end with the same sentence (cluster_sync.c); once it has,
 * whoever comes with other settings is turned away, and the right one waited for. Of
 * one that is in another call of the program no more is asked than that states can be copied. */
static manta_status check_settings(void *ctx, int rank, const hello *theirs)
{
    const manta_cluster *c = ctx;
    const char *us = c->peers[c->rank].node, *who = c->peers[rank].node;
    agreement call = {.n = 0};

    if (!c->generation && !theirs->generation) return MANTA_OK;
    TRY(agreement_compare(who, theirs->word, theirs->n_word, us, c->basis.text, c->basis.n));
    agreement_add(&call, "call", "%lld", (long long)c->at.call);
    if (agreement_compare(who, theirs->word, theirs->n_word, us, call.text, call.n)) return MANTA_OK;
    return agreement_compare(who, theirs->word, theirs->n_word, us, c->settings.text, c->settings.n);
}

static manta_status start_listening(manta_cluster *c)
{
    rendezvous_node *nodes = mem_new((size_t)c->n * sizeof *nodes);
    rendezvous_options o = {
        .what = "cluster", .key = c->key, .nodes = nodes, .n = c->n, .check = check_settings, .ctx = c};
    manta_status st;

    for (int r = 0; r < c->n; r++) {
        nodes[r] = (rendezvous_node){
            .name = c->peers[r].node, .address = c->peers[r].address, .called = rendezvous_calls(c->rank, r)};
    }
    o.chan = (chan_options){.node = c->peers[c->rank].node, .job = c->job, .plain = c->plain};
    st = rendezvous_new(&o, &c->meeting);
    if (!st) st = rendezvous_listen(c->meeting, c->peers[c->rank].address, true, NULL);
    mem_free(nodes);
    return st;
}

/* With parameter servers the chief gives out the work and the workers compute. */
static manta_status open_served(manta_cluster *c, const manta_cluster_options *o)
{
    if (!c->config.n[TF_CHIEF] || !c->config.n[TF_WORKER]) {
        return manta_fail(
            MANTA_EINVAL,
            "TF_CONFIG names parameter servers (cluster.ps) but no %s; the chief gives out the steps, "
            "and workers compute them",
            c->config.n[TF_CHIEF] ? "worker" : "chief");
    }
    TRY(key_hold(NULL, &c->key));
    return key_find(o->key_file, c->key);
}

static manta_status open_cluster(manta_cluster *c, const manta_cluster_options *o)
{
    TRY(option_or_none("timeout_ms of a cluster", o->timeout_ms));
    c->n = tf_config_ranks(&c->config);
    c->rank = tf_config_rank(&c->config);
    c->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS;
    c->plain = o->insecure_bulk;
    name_peers(c);
    name_job(c);
    if (c->config.type == TF_EVALUATOR) return MANTA_OK;
    if (c->config.n[TF_PS]) return open_served(c, o);
    if (c->n == 1) return MANTA_OK;
    TRY(key_hold(NULL, &c->key));
    TRY(key_find(o->key_file, c->key));
    TRY(start_listening(c));
    if (c->plain)
        log_warn("gradients and weights are sent unencrypted (insecure bulk)",
                 LOG_STR("node", c->peers[c->rank].node));
    return MANTA_OK;
}

manta_status manta_cluster_key_make(const char *path)
{
    REFUSE_NULL(path);
    return key_make_new(path);
}

manta_status manta_cluster_open(const manta_cluster_options *options, manta_cluster **out)
{
    REFUSE_NULL(out);

    static const manta_cluster_options none;
    manta_cluster *c = mem_new(sizeof *c);
    manta_status st;

    if (!options) options = &none;
    c->lost = c->culprit = -1;
    st = tf_config_parse(options->tf_config ? options->tf_config : getenv("TF_CONFIG"), &c->config);
    if (st || c->config.local) {
        manta_cluster_close(c);
        if (!st) *out = NULL;
        return st;
    }
    if ((st = open_cluster(c, options))) {
        manta_cluster_close(c);
        return st;
    }
    *out = c;
    return MANTA_OK;
}

void manta_cluster_close(manta_cluster *c)
{
    if (!c) return;
    if (c->peers) cluster_part(c);
    rendezvous_free(c->meeting);
    mem_try_free(c->sum);
    mem_free(c->pieces);
    mem_free(c->heard);
    mem_free(c->peers);
    mem_free(c->items);
    mem_free(c->awaited);
    key_drop(c->key);
    tf_config_release(&c->config);
    mem_free(c);
}

int manta_cluster_rank(const manta_cluster *c)
{
    return c ? c->rank : 0;
}

int manta_cluster_size(const manta_cluster *c)
{
    return c ? c->n : 1;
}

bool manta_cluster_is_chief(const manta_cluster *c)
{
    return !c || tf_config_is_chief(&c->config);
}

const char *manta_cluster_task_type(const manta_cluster *c)
{
    return c ? tf_job_name(c->config.type) : "worker";
}

int manta_cluster_task_index(const manta_cluster *c)
{
    return c ? c->config.index : 0;
}

int cluster_local(const manta_cluster *c)
{
    const char *own = c->peers[c->rank].address;
    size_t host = (size_t)(strrchr(own, ':') - own) + 1;
    int n = 0;

    for (int r = 0; r < c->n; r++) n += !strncmp(c->peers[r].address, own, host);
    return n;
}

/* ---- a call ---- */

/* What all ranks must have in common. */
static void describe_session(manta_cluster *c)
{
    const manta_session *s = c->s;

    c->basis = (agreement){.n = 0};
    agreement_add(&c->basis, "model", "%.64s of %lld parameters", s->m->name,
                  (long long)manta_session_params(s));
    agreement_add(&c->basis, "number of shards", "%d%s", s->shards,
                  s->meets ? " with common statistics" : "");
    agreement_add(&c->basis, "state's size", "%zu bytes", s->l.state_size);
    c->settings = (agreement){.n = 0};
    agreement_add(&c->settings, "call", "%lld", (long long)c->calls - 1);
    agreement_add_session(&c->settings, s);
    agreement_add(&c->settings, "state's size", "%zu bytes", s->l.state_size);
}

/* What the call is to do, and with what data. */
static manta_status describe_work(manta_cluster *c, const cluster_work *w)
{
    static const char *const names[] = {"data", "validation data"};

    c->work = (agreement){.n = 0};
    agreement_add(&c->work, "number of epochs", "%lld", (long long)w->epochs);
    for (int i = 0; i < 2; i++) {
        const feed_reader *r = w->readers[i];
        char name[64];
        if (!r) continue;
        snprintf(name, sizeof name, "batch size%s", i ? " of the validation" : "");
        agreement_add(&c->work, name, "%lld", (long long)r->from->lo.batch_size);
        snprintf(name, sizeof name, "number of steps in %s", i ? "a validation" : "an epoch");
        agreement_add(&c->work, name, "%lld", (long long)(i ? w->validation_steps : w->steps));
        TRY(agreement_add_data(&c->work, names[i], r->from));
    }
    if (c->work.n <= CLUSTER_WORK) return MANTA_OK;
    return manta_fail(MANTA_EINTERNAL, "the words for a call have %zu bytes, expected at most %d", c->work.n,
                      CLUSTER_WORK);
}

static manta_status prepare_work(manta_cluster *c, manta_session *s, const cluster_work *w)
{
    uint64_t most = sizeof(cluster_word) + s->l.state_size + ((uint64_t)s->l.n_sums + 1) * sizeof(double);

    if (c->n_sum != s->l.params_size) {
        mem_try_free(c->sum);
        c->sum = NULL;
        c->n_sum = 0;
        TRY(mem_try_array(s->l.params_size, sizeof *c->sum, "the sum of gradients", (void **)&c->sum));
        c->n_sum = s->l.params_size;
    }
    c->s = s;
    c->pieces = mem_resize(c->pieces, ((size_t)s->l.param_blocks + 1) * sizeof *c->pieces);
    c->heard = mem_resize(c->heard, cluster_heard_bits(c) / 8 + 1);
    for (int i = 0; i < 2; i++) c->readers[i] = w->readers[i];
    c->epochs = w->epochs;
    c->steps[CLUSTER_TRAIN] = w->steps;
    c->steps[CLUSTER_EVALUATE] = w->validation_steps;
    c->watch = w->watch;
    c->ctx = w->ctx;
    describe_session(c);
    TRY(describe_work(c, w));
    if (most < s->l.slot_size) most = s->l.slot_size;
    if (s->meets && most < lockstep_size(s->m, s->shards)) most = lockstep_size(s->m, s->shards);
    /* By the family, not by the instructions that it has for a precision: with and without them the bits are the same. */
    return rendezvous_settle(c->meeting, kernels_in(s->k, KERN_F32)->name, most);
}

manta_status cluster_begin(manta_cluster *c, manta_session *s, const cluster_work *w, bool *over)
{
    int64_t call = c->calls++;

    TRY(prepare_work(c, s, w));
    *over = false;
    if (!c->met || c->at.call != call) { /* unless we have been taken along to here */
        c->at = (cluster_at){.call = call,
                             .iterations = layout_run(&s->l, s->state)->calls,
                             .epoch = w->at.epoch,
                             .phase = w->phase,
                             .step = w->at.step};
        TRY(cluster_rendezvous(c));
    }
    *over = c->at.call != call;
    return MANTA_OK;
}

void cluster_enter(manta_cluster *c, int64_t epoch, cluster_phase phase)
{
    bool further = c->at.epoch > epoch || (c->at.epoch == epoch && c->at.phase >= (int64_t)phase);

    if (c->at.call != c->calls - 1 || further) return;
    c->at.epoch = epoch;
    c->at.phase = phase;
    c->at.step = 0;
    if (phase == CLUSTER_EVALUATE) memset(c->s->eval_sums, 0, ((size_t)c->s->l.n_sums + 1) * sizeof(double));
}

bool cluster_is_in(const manta_cluster *c, int64_t epoch, cluster_phase phase)
{
    return c->at.call == c->calls - 1 && c->at.epoch == epoch && c->at.phase == (int64_t)phase;
}

manta_status cluster_regroup(manta_cluster *c)
{
    return cluster_rendezvous(c);
}

manta_status cluster_recover(manta_cluster *c)
{
    int64_t begin = clock_now_ns();
    int rank = c->lost;
    char cause[sizeof c->cause];

    memcpy(cause, c->cause, sizeof cause);
    log_info("a connection is lost; all meet again", LOG_STR("cause", cause));
    TRY(cluster_rendezvous(c));
    c->recovered = true;
    c->recovered_rank = c->culprit >= 0 && c->culprit != c->rank ? c->culprit : rank;
    c->recovered_ms = (double)(clock_now_ns() - begin) / 1e6;
    memcpy(c->recovered_cause, c->recovered_rank == c->culprit ? c->culprit_cause : cause, sizeof cause);
    return MANTA_OK;
}

bool cluster_take_recovery(manta_cluster *c, int *rank, double *ms, const char **cause)
{
    if (!c->recovered) return false;
    c->recovered = false;
    *rank = c->recovered_rank;
    *ms = c->recovered_ms;
    *cause = c->recovered_cause;
    return true;
}

/* ---- the end of a call ---- */

static void post_all(manta_cluster *c, uint16_t kind, uint32_t item, const void *data, size_t n)
{
    chan_part part = {data, n};
    frame f = {.kind = kind, .step = c->number, .item = item};

    for (int r = 0; r < c->n; r++) {
        /* A failure is found when it is next looked at. */
        if (c->peers[r].c) (void)!chan_post(c->peers[r].c, &f, &part, 1, false);
    }
}

/* Sends what is queued, for as long as that makes sense. */
static void flush_all(manta_cluster *c)
{
    int64_t deadline = clock_deadline(FAREWELL_MS);

    while (clock_now_ns() < deadline) {
        bool sent = true;
        for (int r = 0; r < c->n; r++) {
            if (c->peers[r].c && !chan_work(c->peers[r].c)) sent &= !chan_unsent(c->peers[r].c);
            c->peers[r].waits = 0;
        }
        if (sent || cluster_pump(c, deadline)) return;
    }
}

/* Looks for what a rank says at the end; *all when it knows that all are done. */
static manta_status hear_end(manta_cluster *c, int rank, bool *all)
{
    cluster_peer *p = &c->peers[rank];
    manta_status st;
    size_t got;
    frame f;

    if (!p->c) return MANTA_OK;
    while (!(st = chan_peek(p->c, &f))) {
        if (f.kind == CLUSTER_FAILED)
            return (st = cluster_read_failure(c, rank, p->c)) == MANTA_EBUSY ? MANTA_OK : st;
        bool known = f.kind == CLUSTER_DONE || f.kind == CLUSTER_ALL_DONE;
        uint32_t theirs;
        if (!known || f.length != sizeof theirs) {
            (void)!manta_fail(
                MANTA_ECORRUPT, "%s: message %u of %llu bytes at the end, expected %u or %u of %zu", p->node,
                f.kind, (unsigned long long)f.length, CLUSTER_DONE, CLUSTER_ALL_DONE, sizeof theirs);
            return cluster_lose(c, rank);
        }
        if (chan_left(p->c) == sizeof theirs) p->got = 0;
        if (chan_take(p->c, (char *)&p->end + p->got, sizeof theirs - (size_t)p->got, &got))
            return cluster_lose(c, rank);
        p->got += got;
        if (p->got < sizeof theirs) return MANTA_OK;
        p->got = 0;
        if (p->end != c->digest) {
            return manta_fail(MANTA_EINTERNAL, "%s has come to another result: its state is not that of %s",
                              p->node, c->peers[c->rank].node);
        }
        p->done = true;
        if (f.kind != CLUSTER_ALL_DONE) continue;
        *all = true;
        return MANTA_OK;
    }
    return st == MANTA_EBUSY ? MANTA_OK : cluster_lose(c, rank);
}

/* Until all are at the end: somebody may have been lost in the last step, and
 * need the state that we have. */
static manta_status await_end(manta_cluster *c)
{
    int64_t begin = clock_now_ns(), deadline = clock_deadline(c->timeout_ms);

    cluster_crash(CLUSTER_CRASH_END_BEGIN);
    c->digest = cluster_digest(c);
    post_all(c, CLUSTER_DONE, 0, &c->digest, sizeof c->digest);
    for (;;) {
        bool all = false, each = true;
        int first = -1;
        manta_status lost = MANTA_OK;
        for (int r = 0; r < c->n && !all; r++) {
            manta_status st = r == c->rank ? MANTA_OK : hear_end(c, r, &all);
            if (r == c->rank) continue;
            if (st == MANTA_EDIED && !c->failed) {
                lost = st;
            } else if (st) {
                return st;
            }
            each &= c->peers[r].done;
            c->peers[r].waits = !c->peers[r].done;
            if (!c->peers[r].done && first < 0) first = r;
        }
        if (all || each) return MANTA_OK;
        if (lost) return lost; /* it may not have heard of us, or we not of others */
        if (clock_now_ns() >= deadline) {
            log_warn("finished without having heard that all are", LOG_STR("missing", c->peers[first].node));
            return MANTA_OK;
        }
        if (c->watch && clock_now_ns() - begin > (int64_t)CLUSTER_TICK_MS * 1000000) {
            char text[SECURE_NODE + 40];
            snprintf(text, sizeof text, "waiting for %s at the end", c->peers[first].node);
            if (!c->watch(c->ctx, text, first, (double)(clock_now_ns() - begin) / 1e6))
                return manta_fail(MANTA_ECANCELLED, "stopped on request while %s", text);
        }
        TRY(cluster_pump(c, deadline));
    }
}

static manta_status finish_work(manta_cluster *c)
{
    for (;;) {
        manta_status st;
        if (c->at.call != c->calls - 1) return MANTA_OK; /* the others have gone on */
        st = await_end(c);
        if (st == MANTA_EDIED && c->lost >= 0) {
            TRY(cluster_recover(c));
            continue;
        }
        if (!st) {
            post_all(c, CLUSTER_ALL_DONE, 0, &c->digest, sizeof c->digest);
            flush_all(c);
        }
        return st;
    }
}

manta_status cluster_end(manta_cluster *c, manta_status st)
{
    if (!st) st = finish_work(c);
    if (st && st != MANTA_ECANCELLED && !c->failed) {
        manta_error_get(&c->failure);
        post_all(c, CLUSTER_FAILED, c->differ ? CLUSTER_SAID_OF_ALL : 0, &c->failure, sizeof c->failure);
        flush_all(c);
        (void)!manta_error_raise(&c->failure);
    }
    cluster_part(c);
    c->watch = NULL;
    return st;
}
