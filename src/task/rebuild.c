/* rebuild.c - objects whose bytes are gone: made again by running their calls again
 * (lineage.c decides which), or failed. The lock is held everywhere.
 *
 *     reader ── MISSED ──▶ daemon ── REBUILD ──▶ owner ── runs the call again ──▶ ADD ──┐
 *       ▲                                          └── or cannot: FAIL ─────────────────┤
 *       └────────────── OBJECT or OBJECT_FAILED, as for one not there yet ◀─────────────┘
 *
 * Whoever cannot read an object says so and waits for it as for one that is not there yet;
 * the owner, the process that numbered it, may be the same process. Private puts have nobody
 * to ask, and fail.
 *
 * A call that ended well and whose results are large is kept (rt->kept): it is in no list,
 * counts no more, and has given its arguments back, but for small ones that nobody else
 * holds (call_arg.id remembers the others). When it is to run again its arguments are looked
 * up, those that are gone are rebuilt first, and it goes through call_resume() like a new one.
 *
 * A call stays in rt->kept until lineage.c forgets it, also while it runs again. If it fails
 * then, rebuild_failed() takes it out first and its caller frees it, so it is freed once. How
 * often a call runs again and how much is kept is lineage.h's to say, and may be changed
 * there. */
#include "task/rebuild.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "task/call.h"
#include "task/lineage.h"
#include "task/object.h"
#include "task/proto.h"
#include "task/runtime.h"
#include "task/value.h"

#define RETAINED_PART 16 /* of the limit: how large an argument is kept along with its call */

size_t rebuild_limit = (size_t)64 << 20;

static void lineage_apply(lineage_event e, lineage_actions *out)
{
    if (!rt->lineage) rt->lineage = lineage_new(rebuild_limit);
    lineage_step(rt->lineage, &e, out);
}

static call *find_kept(uint64_t id)
{
    call **c = map_u64_find(&rt->kept, id);

    return c ? *c : NULL;
}

/* Frees the calls that lineage does not keep any more. */
static void forget_calls(const lineage_actions *out)
{
    for (size_t i = 0; i < out->n; i++) {
        if (out->at[i].kind != LINEAGE_DO_FORGET) continue;
        call *c = find_kept(out->at[i].call);
        if (!c) continue;
        map_u64_remove(&rt->kept, c->id);
        call_release(c);
    }
}

/* ---- keeping ---- */

static bool is_large(const call *c)
{
    for (int i = 0; i < c->results; i++) {
        const object *o = object_find(c->id + (uint64_t)i);
        if (o && o->state == OBJECT_READY && o->v.place.segment) return true;
    }
    return false;
}

/* Arguments that nobody else holds stay with the call, if they are small beside
 * the limit; of the others the number stays, and their own calls. */
static size_t retain_arguments(call *c, uint64_t *ids, int *n)
{
    size_t bytes = sizeof *c + (size_t)c->n_args * sizeof c->args[0];

    for (int i = 0; i < c->n_args; i++) {
        call_arg *a = &c->args[i];
        a->id = 0;
        if (!a->o) {
            bytes += (size_t)a->v.size;
            continue;
        }
        bool ours_alone = a->o->refs == 0 && a->o->pins == 1;
        if (ours_alone && !lineage_knows(rt->lineage, a->o->id) &&
            a->o->v.size <= rebuild_limit / RETAINED_PART) {
            bytes += (size_t)a->o->v.size;
        } else {
            a->id = a->o->id;
            ids[(*n)++] = a->id;
        }
    }
    return bytes;
}

/* Lets go of what the call held only while it was under way. */
static void let_arguments_go(call *c)
{
    for (int i = 0; i < c->n_args; i++) {
        object *o = c->args[i].o;
        if (!c->args[i].id || !o) continue;
        c->args[i].o = NULL;
        object_unpin(o);
    }
}

bool rebuild_keep(call *c)
{
    lineage_actions out = {0};

    if (find_kept(c->id)) {
        lineage_apply((lineage_event){.kind = LINEAGE_ENDED, .call = c->id}, &out);
        let_arguments_go(c);
        forget_calls(&out);
        vec_release(&out);
        return true;
    }
    if (rt->is_local || rebuild_limit == 0 || c->actor || c->is_stream || c->max_retries == 0 || !is_large(c))
        return false;
    if (!rt->lineage) rt->lineage = lineage_new(rebuild_limit);
    uint64_t *ids = mem_new((size_t)c->n_args * sizeof *ids + 8);
    int n = 0;
    size_t bytes = retain_arguments(c, ids, &n);
    call_unlink(c);
    *map_u64_put(&rt->kept, c->id) = c;
    lineage_apply((lineage_event){.kind = LINEAGE_KEEP,
                                  .call = c->id,
                                  .n = c->results,
                                  .args = ids,
                                  .n_args = n,
                                  .bytes = bytes,
                                  .retries = c->max_retries},
                  &out);
    mem_free(ids);
    for (int i = 0; i < c->results; i++) { /* those that were dropped before they were there */
        uint64_t id = c->id + (uint64_t)i;
        if (!object_find(id)) lineage_apply((lineage_event){.kind = LINEAGE_DROP, .object = id}, &out);
    }
    let_arguments_go(c);
    forget_calls(&out);
    vec_release(&out);
    return true;
}

void rebuild_failed(const call *c)
{
    lineage_actions out = {0};

    if (!find_kept(c->id)) return;
    map_u64_remove(&rt->kept, c->id); /* the call is its caller's to free */
    lineage_apply((lineage_event){.kind = LINEAGE_FORGET, .call = c->id}, &out);
    forget_calls(&out);
    vec_release(&out);
}

void rebuild_dropped(uint64_t id)
{
    lineage_actions out = {0};

    if (!rt->lineage || !lineage_knows(rt->lineage, id)) return;
    lineage_apply((lineage_event){.kind = LINEAGE_DROP, .object = id}, &out);
    forget_calls(&out);
    vec_release(&out);
}

void rebuild_release(void)
{
    for (size_t i = 0; i < rt->kept.n; i++) {
        call *c = rt->kept.at[i].value;
        bool under_way = false; /* then it is freed with the others */
        for (int k = 0; k < c->results; k++) {
            const object *o = object_find(c->id + (uint64_t)k);
            under_way = under_way || (o && o->maker == c);
        }
        if (under_way) continue;
        mem_free(c->label);
        mem_free(c->group);
        mem_free(c);
    }
    map_u64_release(&rt->kept);
    lineage_free(rt->lineage);
}

/* ---- losing ---- */

/* Whether the value lies in this process itself, where nobody can lose it,
 * whatever the node says. */
static bool is_here(const object *o)
{
    return o->state == OBJECT_READY && o->on_heap;
}

/* What was read is no more: the entry is as before its value came. What it refers to by an index
 * is held until another value comes, or none will. */
static void object_reset(object *o)
{
    o->v = (value){.kind = o->v.kind, .index = o->v.index};
    o->state = OBJECT_PENDING;
    o->wanted = false;
}

static void fail_lost(uint64_t id, lineage_why why, const char *reason)
{
    static const char *const texts[] = {
        [LINEAGE_NOT_KEPT] = "it was put, or made by an actor, or what made it is not remembered any more",
        [LINEAGE_TOO_OFTEN] = "what made it has run as often as it may"};
    object *o = object_find(id);

    if (o && is_here(o)) return;
    failure *f = failure_make(MANTA_FAILURE_LOST, MANTA_EIO, NULL, (int)getpid(),
                              "an object of process %d is lost and cannot be made again: %s; %s",
                              (int)getpid(), texts[why], reason);
    buf *b = proto_begin(&rt->out, PROTO_FAIL);
    wire_put_u64(b, id);
    failure_put(b, f);
    rt_tell();
    if (!o) { /* an argument of something that is to run again */
        o = object_new(id);
        o->exported = true;
    }
    if (o->state == OBJECT_READY) object_reset(o);
    if (o->state == OBJECT_PENDING && !o->maker) object_fail(o, failure_ref(f));
    failure_unref(f);
}

/* Its results are to come again. */
static void expect_results(call *c, uint64_t needed)
{
    for (int i = 0; i < c->results; i++) {
        uint64_t id = c->id + (uint64_t)i;
        object *o = object_find(id);
        if (!o) o = object_new(id);
        if (id == needed && o->state == OBJECT_READY && !is_here(o)) object_reset(o);
        if (o->state == OBJECT_PENDING) o->maker = c;
    }
}

static void tie_again(call *c)
{
    for (int i = 0; i < c->n_args; i++) {
        call_arg *a = &c->args[i];
        if (!a->id) continue;
        object *o = object_find(a->id);
        if (!o) o = object_new(a->id);
        o->pins++;
        a->o = o;
    }
    c->attempt++;
    c->cancelled = false;
}

void rebuild_object(uint64_t id, const char *reason)
{
    lineage_actions out = {0};
    const object *o = object_find(id);

    if (o && is_here(o)) return;
    lineage_apply((lineage_event){.kind = LINEAGE_NEED, .object = id}, &out);
    for (size_t i = 0; i < out.n; i++)
        if (out.at[i].kind == LINEAGE_DO_RUN) expect_results(find_kept(out.at[i].call), out.at[i].object);
    for (size_t i = 0; i < out.n; i++)
        if (out.at[i].kind == LINEAGE_DO_RUN) tie_again(find_kept(out.at[i].call));
    for (size_t i = 0; i < out.n; i++)
        if (out.at[i].kind == LINEAGE_DO_FAIL) fail_lost(out.at[i].object, out.at[i].why, reason);
    for (size_t i = 0; i < out.n; i++) {
        call *c = out.at[i].kind == LINEAGE_DO_RUN ? find_kept(out.at[i].call) : NULL;
        if (c) call_resume(c);
    }
    vec_release(&out);
}

bool rebuild_missed(object *o, manta_status st)
{
    if ((st != MANTA_ENOENT && st != MANTA_EIO) || !o->v.place.segment || o->v.at || rt->is_local)
        return false;
    if (!o->exported) { /* nobody else ever knew it */
        object_reset(o);
        object_fail(o,
                    failure_make(MANTA_FAILURE_LOST, MANTA_EIO, NULL, (int)getpid(),
                                 "an object of process %d is lost, and what is put cannot be made again: %s",
                                 (int)getpid(), manta_error_text()));
        return true;
    }
    buf *b = proto_begin(&rt->out, PROTO_MISSED);
    wire_put_u64(b, o->id);
    wire_put_u64(b, o->v.place.segment);
    wire_put_u64(b, o->v.place.at);
    rt_tell();
    object_reset(o);
    o->wanted = true; /* the daemon knows */
    return true;
}

/* A worker could not read the arguments: each is asked for again. */
void rebuild_arguments(call *c)
{
    for (int i = 0; i < c->n_args; i++) {
        object *o = c->args[i].o;
        const void *at;
        if (!o || o->state != OBJECT_READY || !o->v.place.segment || o->v.at) continue;
        if (o->exported) {
            (void)rebuild_missed(o, MANTA_ENOENT);
            continue;
        }
        o->pins++; /* opening may give the lock away */
        manta_status st = store_pin(rt->store, o->v.place, (size_t)o->v.size, &at);
        if (st)
            (void)rebuild_missed(o, st);
        else
            store_unpin(rt->store, o->v.place);
        object_unpin(o);
    }
}
