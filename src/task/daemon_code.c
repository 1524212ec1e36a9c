/* daemon_code.c - code by key (manta/code.h): which object lies under which key of which program.
 *
 * A program holds what was put (as the daemon itself, client 0, in refs.h) until it is over;
 * whoever asks holds it for itself from then on. A key that is taken stays as it is, and who comes second
 * is told of the first. */
#include "task/daemon.h"

#include <stdio.h>

#include <manta/code.h>

static bool take_key(wire *w, char name[2 * MANTA_CODE_KEY + 1])
{
    const unsigned char *key = wire_take(w, MANTA_CODE_KEY);

    for (size_t i = 0; key && i < MANTA_CODE_KEY; i++) snprintf(name + 2 * i, 3, "%02x", key[i]);
    return key != NULL;
}

static void on_code_put(node *d, client *c, wire *w)
{
    char name[2 * MANTA_CODE_KEY + 1];
    uint64_t request = wire_u64(w);
    bool has_key = take_key(w, name);
    uint64_t id = wire_u64(w);
    job *j = daemon_job(d, c->job);

    if (wire_end(w, "code") || !has_key || !j) return;
    const uint64_t *known = map_find(&j->codes, name);
    if (known) {
        id = *known;
    } else {
        *map_put(&j->codes, name) = id;
        daemon_refs(d, REFS_HOLD, id, 0, 0);
    }
    daemon_answer_found(d, c, request, MANTA_OK, id);
}

static void on_code_get(node *d, client *c, wire *w)
{
    char name[2 * MANTA_CODE_KEY + 1];
    uint64_t request = wire_u64(w);
    bool has_key = take_key(w, name);
    job *j = daemon_job(d, c->job);

    if (wire_end(w, "code") || !has_key) return;
    const uint64_t *known = j ? map_find(&j->codes, name) : NULL;
    manta_status st = known ? MANTA_OK : manta_fail(MANTA_ENOENT, "no code was put under the key %s", name);
    if (known) daemon_refs(d, REFS_HOLD, *known, 0, c->id);
    daemon_answer_found(d, c, request, st, known ? *known : 0);
}

bool daemon_code_message(node *d, client *c, proto_kind kind, wire *w)
{
    switch (kind) {
    case PROTO_CODE_PUT: on_code_put(d, c, w); return true;
    case PROTO_CODE_GET: on_code_get(d, c, w); return true;
    default: return false;
    }
}

void daemon_drop_code(node *d, job *j)
{
    for (size_t i = 0; i < j->codes.n; i++) daemon_refs(d, REFS_DROP, j->codes.at[i].value, 0, 0);
    map_release(&j->codes);
}
