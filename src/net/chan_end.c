/* chan_end.c - this node: its key, its name, what it says of itself, and where it
 * may be reached. */
#include <string.h>

#include <manta/version.h>

#include "base/mem.h"
#include "net/chan_inner.h"

enum { HANDSHAKE_MS = 10000, SILENCE_MS = 6000 };

static manta_status copy_name(char out[FRAME_NAME], const char *text, const char *what)
{
    if (!text) text = "";
    if (strlen(text) >= FRAME_NAME)
        return manta_fail(MANTA_EINVAL, "the %s has %zu characters, at most %d are allowed", what,
                          strlen(text), FRAME_NAME - 1);
    memcpy(out, text, strlen(text) + 1);
    return MANTA_OK;
}

manta_status chan_end_new(const chan_options *o, const cluster_key *key, chan_end **out)
{
    chan_end *e = mem_new(sizeof *e);
    manta_status st;

    e->say.protocol = FRAME_PROTOCOL;
    e->say.plain = o->plain;
    e->handshake_ms = o->handshake_ms ? o->handshake_ms : HANDSHAKE_MS;
    e->silence_ms = o->silence_ms ? o->silence_ms : SILENCE_MS;
    e->max_frame = o->max_frame ? o->max_frame : (uint64_t)1 << 30;
    e->key_given = key->given;
    e->check = o->check;
    e->ctx = o->ctx;
    if ((st = copy_name(e->say.version, MANTA_VERSION_TEXT, "version"))) goto out;
    if ((st = copy_name(e->say.job, o->job, "job's name"))) goto out;
    if ((st = copy_name(e->say.node, o->node, "node's name"))) goto out;
    if ((st = copy_name(e->say.profile, o->profile, "profile"))) goto out;
    if ((st = secure_context_new(key, e->say.node, &e->tls))) goto out;
    *out = e;
    e = NULL;
out:
    chan_end_free(e);
    return st;
}

void chan_end_free(chan_end *e)
{
    if (!e) return;
    secure_context_free(e->tls);
    mem_free(e);
}

void chan_end_say(chan_end *e, uint64_t generation, const void *word, size_t n)
{
    e->say.generation = generation;
    e->say.n_word = (uint32_t)(n <= FRAME_WORD ? n : FRAME_WORD);
    if (n) memcpy(e->say.word, word, e->say.n_word);
}

manta_status chan_end_settle(chan_end *e, const char *profile, uint64_t max_frame)
{
    e->max_frame = max_frame;
    return copy_name(e->say.profile, profile, "profile");
}

static manta_status check_reach(const chan_end *e, const tcp_place *at)
{
    if (e->key_given || tcp_is_loopback(at)) return MANTA_OK;
    return manta_fail(MANTA_EPERM,
                      "listening on %s, which other hosts can reach, needs a cluster key that is given: "
                      "--cluster-key FILE or MANTA_CLUSTER_KEY, the same file on every host",
                      at->text);
}

manta_status chan_listen(const chan_end *e, const tcp_place *at, int *out)
{
    TRY(check_reach(e, at));
    return tcp_listen(at, out);
}

manta_status chan_inherit(const chan_end *e, const char *address, const char *fd, int *out)
{
    tcp_place at;
    int listener;

    TRY(tcp_inherit(fd, address, &at, &listener));
    TRY(check_reach(e, &at));
    *out = listener;
    return MANTA_OK;
}
