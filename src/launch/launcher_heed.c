/* launcher_heed.c - what the launcher does about what its agents say (launch/talk.h). The states of
 * a host and what is promised are drawn in launcher.h.
 *
 *     HELLO     the same version here and there: key and setup are sent; else the launch fails
 *     PORTS     addresses of its ranks; when all hosts have sent theirs, each is asked to reach the others
 *     CHECKED   when all have, GO: the ranks are started, on all hosts at once
 *     OUTPUT    a rank has printed: lines, with its number, to our output
 *     ENDED     a rank has ended: well; by a signal, and is started again as long as none has ended
 *               well and restarts are left; else it is the culprit, and all others are told to end
 *     FAILED    a step failed there: the launch fails, with the agent's block
 *     ASKED     the host was asked to end by somebody else: all end
 *     PULSE     it lives
 *
 * An agent is another program on another host: a message that does not fit the state of its host,
 * or names a rank that is not its, is MANTA_ECORRUPT, and fails the launch (launcher.c). A failure is
 * said once; what follows from it is not said again. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/version.h>

#include "base/block.h"
#include "base/clock.h"
#include "base/mem.h"
#include "launch/address.h"
#include "launch/launcher.h"
#include "net/tcp.h"

enum { KEY_TEXT = 64, RESUMABLE = 75, INTERRUPTED = 130 };

/* ---- what is said to people ---- */

void launcher_say(launcher *l, const manta_block *b)
{
    block_put(b, &l->error->waiting);
}

void launcher_fail(launcher *l, const launch_host *h, const char *step, const char *what, const char *remedy)
{
    manta_block b = {0};

    if (!l->failed && !l->urgency) {
        manta_block_add(&b, "the launch failed on %s", h->name);
        manta_block_line(&b, "step");
        manta_block_add(&b, "%s", step);
        manta_block_line(&b, "what");
        manta_block_add(&b, "%s", what);
        manta_block_line(&b, "remedy");
        manta_block_add(&b, "%s", remedy);
        launcher_say(l, &b);
    }
    l->failed = true;
    launcher_end(l, SIGTERM);
}

static void say_rank(launcher *l, int rank, const char *now)
{
    manta_block b = {0};
    char text[100];

    manta_block_add(&b, "rank %d on %s failed", l->base + rank, l->hosts[l->ranks[rank].host].name);
    manta_block_line(&b, "what");
    manta_block_add(&b, "%s", spawn_status_text(l->ranks[rank].status, text, sizeof text));
    manta_block_line(&b, "now");
    manta_block_add(&b, "%s", now);
    launcher_say(l, &b);
}

/* ---- starting ---- */

static bool all_are(const launcher *l, host_state state)
{
    for (int i = 0; i < l->n_hosts; i++) {
        if (l->hosts[i].state != state) return false;
    }
    return true;
}

/* 256 random bits, by which the processes of this launch know each other. The same for all hosts. */
static manta_status post_key(launcher *l, launch_host *h)
{
    unsigned char bytes[KEY_TEXT / 2];

    if (!*l->key) {
        if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
            return manta_fail(MANTA_EIO, "there are no random bytes for a key: %s", strerror(errno));
        for (size_t i = 0; i < sizeof bytes; i++) snprintf(l->key + 2 * i, 3, "%02x", bytes[i]);
        explicit_bzero(bytes, sizeof bytes);
    }
    talk_post(&h->t, TALK_KEY, l->key, KEY_TEXT);
    return MANTA_OK;
}

static manta_status heed_hello(launcher *l, launch_host *h, const json_t *v)
{
    const char *version = json_string_value(json_object_get(v, "version"));
    char what[200];

    if (h->state != HOST_STARTING)
        return manta_fail(MANTA_ECORRUPT,
                          "the agent greets a second time: expected one greeting, at its start");
    if (!version || strcmp(version, MANTA_VERSION_TEXT) != 0) {
        snprintf(what, sizeof what, "manta there is %.60s, here it is %s", version ? version : "unknown",
                 MANTA_VERSION_TEXT);
        launcher_fail(l, h, "version", what,
                      "install the same version everywhere, or name another with --manta");
        return MANTA_OK;
    }
    h->state = HOST_SETTING;
    TRY(post_key(l, h));
    talk_post_json(&h->t, TALK_SETUP,
                   json_pack("{s:s, s:o, s:i, s:i, s:i, s:i, s:b, s:i}", "job", l->job, "name",
                             json_string(h->name), "lease_ms", (int)l->o->lease_ms, "grace_ms",
                             (int)l->o->grace_ms, "first", h->first, "count", h->count, "only",
                             l->n_hosts == 1 && !l->pod, "port", l->pod ? ADDRESS_FIRST_PORT : 0));
    return MANTA_OK;
}

/* An address that never leaves its machine, beside hosts that have others, leads nowhere. */
static bool check_addresses(launcher *l)
{
    int here = 0;

    for (int i = 0; i < l->n_ranks; i++) here += address_is_loopback(l->ranks[i].address);
    for (int i = 0; i < l->n_ranks && here && here < l->n_ranks; i++) {
        char what[200];
        if (!address_is_loopback(l->ranks[i].address)) continue;
        snprintf(what, sizeof what, "its ranks would listen at %.80s, which the other hosts cannot reach",
                 l->ranks[i].address);
        launcher_fail(l, &l->hosts[l->ranks[i].host], "address", what,
                      "name the host by an address that the other hosts reach it by");
        return false;
    }
    return true;
}

static void ask_to_check(launcher *l)
{
    for (int i = 0; i < l->n_hosts; i++) {
        json_t *others = json_array();
        for (int k = 0; k < l->n_hosts; k++) {
            if (k != i) json_array_append_new(others, json_string(l->ranks[l->hosts[k].first].address));
        }
        talk_post_json(&l->hosts[i].t, TALK_CHECK, json_pack("{s:o}", "addresses", others));
    }
}

static manta_status heed_ports(launcher *l, launch_host *h, const json_t *v)
{
    json_t *list = json_object_get(v, "addresses");
    char name[TCP_TEXT];
    int port;

    if (h->state != HOST_SETTING || json_array_size(list) != (size_t)h->count)
        return manta_fail(
            MANTA_ECORRUPT,
            "the agent sent addresses of %zu ranks: expected those of its %d ranks, once, after its greeting",
            json_array_size(list), h->count);
    for (int i = 0; i < h->count; i++) {
        const char *address = json_string_value(json_array_get(list, (size_t)i));
        if (!address || strlen(address) > ADDRESS_TEXT + 8 || tcp_split(address, name, &port))
            return manta_fail(MANTA_ECORRUPT,
                              "the agent sent as address of rank %d \"%.60s\": expected host:port",
                              h->first + i, address ? address : "");
        l->ranks[h->first + i].address = mem_strdup(address);
    }
    h->state = HOST_CHECKING;
    if (all_are(l, HOST_CHECKING) && check_addresses(l)) ask_to_check(l);
    return MANTA_OK;
}

/* Variables that ranks are to have as we have them. */
static json_t *make_variables(const launcher *l)
{
    json_t *out = json_object();
    char *names = mem_strdup(l->o->variables ? l->o->variables : ""), *rest = NULL;

    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        const char *value = getenv(name);
        if (value) json_object_set_new(out, name, json_string(value));
    }
    mem_free(names);
    return out;
}

static void start_ranks(launcher *l)
{
    json_t *argv = json_array(), *cluster = l->pod ? launcher_pod_addresses(l) : json_array(),
           *variables = make_variables(l);
    char here[PATH_MAX];
    const char *folder = l->o->folder ? l->o->folder : getcwd(here, sizeof here) ? here : "/";

    for (const char *const *w = l->o->argv; *w; w++) json_array_append_new(argv, json_string(*w));
    for (int i = 0; i < l->n_ranks && !l->pod; i++)
        json_array_append_new(cluster, json_string(l->ranks[i].address));
    for (int i = 0; i < l->n_hosts; i++) {
        l->hosts[i].state = HOST_RUNNING;
        talk_post_json(&l->hosts[i].t, TALK_GO,
                       json_pack("{s:O, s:O, s:O, s:o, s:i}", "argv", argv, "cluster", cluster, "variables",
                                 variables, "folder", json_string(folder), "base", l->base));
    }
    json_decref(argv);
    json_decref(cluster);
    json_decref(variables);
    l->start_deadline = CLOCK_NEVER;
}

static manta_status heed_checked(launcher *l, launch_host *h)
{
    if (h->state != HOST_CHECKING)
        return manta_fail(
            MANTA_ECORRUPT,
            "the agent says that it has reached the others: nobody has asked it, or it has said so before");
    h->state = HOST_READY;
    if (all_are(l, HOST_READY) && !l->urgency) start_ranks(l);
    return MANTA_OK;
}

/* ---- running ---- */

static manta_status heed_output(launcher *l, launch_host *h, const talk_message *m)
{
    uint32_t rank;
    int stream;

    TRY(talk_output(m, &rank, &stream));
    if (rank >= (uint32_t)l->n_ranks || &l->hosts[l->ranks[rank].host] != h)
        return manta_fail(MANTA_ECORRUPT, "the agent sent output of rank %u, which is not of its host", rank);
    lines_add(&l->ranks[rank].output[stream - 1], m->data + TALK_OUTPUT_HEAD, m->n - TALK_OUTPUT_HEAD);
    return MANTA_OK;
}

/* A rank ended as those do that were told to end, though nobody here has told it. */
static bool was_told(int status)
{
    return WIFEXITED(status) && (WEXITSTATUS(status) == RESUMABLE || WEXITSTATUS(status) == INTERRUPTED);
}

static void heed_loss(launcher *l, launch_host *h, int number)
{
    launch_rank *r = &l->ranks[number];
    char now[100];

    if (WIFSIGNALED(r->status) && r->restarts < l->max_restarts && !l->n_well) {
        r->restarts++;
        r->ended = false;
        l->n_ended--;
        snprintf(now, sizeof now, "it is started again, %d of %d times; the others wait for it", r->restarts,
                 l->max_restarts);
        say_rank(l, number, now);
        talk_post_json(&h->t, TALK_AGAIN, json_pack("{s:i}", "rank", number));
        return;
    }
    l->culprit = number;
    if (!was_told(r->status)) say_rank(l, number, "all others are told to end");
    launcher_end(l, SIGTERM);
}

static manta_status heed_ended(launcher *l, launch_host *h, const json_t *v)
{
    json_t *number = json_object_get(v, "status");
    json_int_t status = json_integer_value(number),
               rank = json_is_integer(json_object_get(v, "rank"))
                          ? json_integer_value(json_object_get(v, "rank"))
                          : -1;
    launch_rank *r;

    if (rank < h->first || rank >= h->first + h->count || l->ranks[rank].ended)
        return manta_fail(MANTA_ECORRUPT,
                          "the agent says that rank %lld has ended, which is not of its host or ended before",
                          (long long)rank);
    if (!json_is_integer(number) || status < -1 || status > 0xffff ||
        (status >= 0 && !WIFEXITED((int)status) && !WIFSIGNALED((int)status)))
        return manta_fail(
            MANTA_ECORRUPT,
            "the agent says that rank %lld has ended with status %lld, which is no status of a process",
            (long long)rank, (long long)status);
    r = &l->ranks[rank];
    r->ended = true;
    r->status = (int)status;
    l->n_ended++;
    lines_end(&r->output[0]);
    lines_end(&r->output[1]);
    if (r->status == 0) {
        l->n_well++;
    } else if (!l->urgency) {
        heed_loss(l, h, (int)rank);
    }
    return MANTA_OK;
}

static manta_status heed_failure(launcher *l, launch_host *h, const json_t *v)
{
    const char *step = json_string_value(json_object_get(v, "step"));
    const char *what = json_string_value(json_object_get(v, "what"));
    const char *remedy = json_string_value(json_object_get(v, "remedy"));

    if (!step || !what || !remedy)
        return manta_fail(
            MANTA_ECORRUPT,
            "the agent says that something failed and not what: expected step, what and remedy as texts");
    launcher_fail(l, h, step, what, remedy);
    return MANTA_OK;
}

static manta_status heed_json(launcher *l, launch_host *h, talk_kind kind, const json_t *v)
{
    switch (kind) {
    case TALK_HELLO: return heed_hello(l, h, v);
    case TALK_PORTS: return heed_ports(l, h, v);
    case TALK_ENDED: return heed_ended(l, h, v);
    case TALK_FAILED: return heed_failure(l, h, v);
    default: break; /* TALK_ASKED */
    }
    if (!l->signal) l->signal = SIGTERM;
    launcher_end(l, SIGTERM);
    return MANTA_OK;
}

manta_status launcher_heed(launcher *l, launch_host *h, const talk_message *m)
{
    json_t *v;
    manta_status st;

    switch (m->kind) {
    case TALK_PULSE: return MANTA_OK;
    case TALK_CHECKED: return heed_checked(l, h);
    case TALK_OUTPUT: return heed_output(l, h, m);
    case TALK_HELLO:
    case TALK_PORTS:
    case TALK_ENDED:
    case TALK_FAILED:
    case TALK_ASKED: break;
    default:
        return manta_fail(MANTA_ECORRUPT,
                          "the agent sent a message of kind %d, which a launcher does not know", m->kind);
    }
    TRY(talk_json(m, &v));
    st = heed_json(l, h, m->kind, v);
    json_decref(v);
    return st;
}
