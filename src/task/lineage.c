/* lineage.c - see lineage.h. */
#include "task/lineage.h"

#include "base/map.h"
#include "base/mem.h"

typedef struct kept {
    uint64_t id;
    int n, retries;
    bool running;
    size_t bytes;
    VEC(uint64_t) args;
} kept;

/* An object that a kept call makes or takes. */
typedef struct thing {
    kept *maker; /* NULL: none is kept */
    int32_t users; /* kept calls that take it */
    bool held;
} thing;

struct lineage {
    size_t limit, bytes;
    MAP_U64(kept *) calls;
    MAP_U64(thing) things;
    VEC(uint64_t) order; /* calls, in the order in which they were kept; some are gone */
    size_t first; /* of order */
};

lineage *lineage_new(size_t limit)
{
    lineage *l = mem_new(sizeof *l);

    l->limit = limit;
    return l;
}

static void kept_free(kept *k)
{
    vec_release(&k->args);
    mem_free(k);
}

void lineage_free(lineage *l)
{
    if (!l) return;
    for (size_t i = 0; i < l->calls.n; i++) kept_free(l->calls.at[i].value);
    map_u64_release(&l->calls);
    map_u64_release(&l->things);
    vec_release(&l->order);
    mem_free(l);
}

static void push_action(lineage_actions *out, lineage_action_kind kind, uint64_t call, uint64_t object)
{
    vec_push(out, ((lineage_action){.kind = kind, .call = call, .object = object}));
}

static bool is_of_use(const lineage *l, const kept *k)
{
    for (int i = 0; i < k->n; i++) {
        const thing *t = map_u64_find(&l->things, k->id + (uint64_t)i);
        if (t && (t->held || t->users > 0)) return true;
    }
    return false;
}

/* Nobody needs to know of the object any more. */
static void thing_check(lineage *l, uint64_t object)
{
    const thing *t = map_u64_find(&l->things, object);

    if (t && !t->held && t->users == 0 && !t->maker) map_u64_remove(&l->things, object);
}

/* Forgets a call, and those that were kept only for its arguments. One that
 * runs is the program's anyway, until it ends. */
static void forget_call(lineage *l, kept *first, lineage_actions *out)
{
    VEC(kept *) next = {0};

    vec_push(&next, first);
    while (next.n > 0) {
        kept *k = vec_pop(&next);
        for (int i = 0; i < k->n; i++) {
            thing *t = map_u64_find(&l->things, k->id + (uint64_t)i);
            if (t) t->maker = NULL;
            thing_check(l, k->id + (uint64_t)i);
        }
        for (size_t i = 0; i < k->args.n; i++) {
            thing *t = map_u64_find(&l->things, k->args.at[i]);
            if (!t) continue;
            t->users--;
            kept *maker = t->maker;
            thing_check(l, k->args.at[i]);
            if (maker && !maker->running && !is_of_use(l, maker)) {
                bool known = false; /* by another of its results */
                for (size_t j = 0; j < next.n; j++) known = known || next.at[j] == maker;
                if (!known) vec_push(&next, maker);
            }
        }
        l->bytes -= k->bytes;
        map_u64_remove(&l->calls, k->id);
        push_action(out, LINEAGE_DO_FORGET, k->id, 0);
        kept_free(k);
    }
    vec_release(&next);
}

static void forget_oldest(lineage *l, lineage_actions *out)
{
    while (l->bytes > l->limit && l->first < l->order.n) {
        kept **k = map_u64_find(&l->calls, l->order.at[l->first++]);
        if (k && !(*k)->running) forget_call(l, *k, out);
    }
    if (l->first > 1024 && l->first > l->order.n / 2) {
        for (size_t i = l->first; i < l->order.n; i++) l->order.at[i - l->first] = l->order.at[i];
        l->order.n -= l->first;
        l->first = 0;
    }
}

static void on_keep(lineage *l, const lineage_event *e, lineage_actions *out)
{
    if (map_u64_find(&l->calls, e->call)) return;
    kept *k = mem_new(sizeof *k);
    *k = (kept){.id = e->call, .n = e->n, .retries = e->retries, .bytes = e->bytes};
    for (int i = 0; i < e->n; i++) {
        thing *t = map_u64_put(&l->things, e->call + (uint64_t)i);
        t->maker = k;
        t->held = true;
    }
    for (int i = 0; i < e->n_args; i++) {
        thing *t = map_u64_put(&l->things, e->args[i]);
        if (t->users == 0 && !t->maker) t->held = true; /* it was unknown */
        t->users++;
        vec_push(&k->args, e->args[i]);
    }
    *map_u64_put(&l->calls, e->call) = k;
    vec_push(&l->order, e->call);
    l->bytes += e->bytes;
    forget_oldest(l, out);
}

static void on_drop(lineage *l, uint64_t object, lineage_actions *out)
{
    thing *t = map_u64_find(&l->things, object);

    if (!t) return;
    t->held = false;
    if (t->maker && !t->maker->running && !is_of_use(l, t->maker))
        forget_call(l, t->maker, out);
    else
        thing_check(l, object);
}

static void on_need(lineage *l, uint64_t first, lineage_actions *out)
{
    VEC(uint64_t) next = {0};

    vec_push(&next, first);
    while (next.n > 0) {
        uint64_t object = vec_pop(&next);
        thing *t = map_u64_find(&l->things, object);
        kept *k = t ? t->maker : NULL;
        if (k && k->running) continue; /* it comes */
        if (!k || k->retries == 0) {
            push_action(out, LINEAGE_DO_FAIL, 0, object);
            vec_last(out).why = k ? LINEAGE_TOO_OFTEN : LINEAGE_NOT_KEPT;
            continue;
        }
        k->running = true;
        if (k->retries > 0) k->retries--;
        push_action(out, LINEAGE_DO_RUN, k->id, object);
        for (int i = 0; i < k->n; i++) { /* they are held again, at least until they come */
            thing *r = map_u64_find(&l->things, k->id + (uint64_t)i);
            if (r) r->held = true;
        }
        for (size_t i = 0; i < k->args.n; i++) {
            const thing *a = map_u64_find(&l->things, k->args.at[i]);
            if (!a || !a->held) vec_push(&next, k->args.at[i]);
        }
    }
    vec_release(&next);
}

/* While a call runs its results and arguments are held, as those of any call;
 * what is not any more was dropped meanwhile. */
static void on_ended(lineage *l, uint64_t call, lineage_actions *out)
{
    kept **k = map_u64_find(&l->calls, call);

    if (!k || !(*k)->running) return;
    (*k)->running = false;
    if (!is_of_use(l, *k)) forget_call(l, *k, out);
    forget_oldest(l, out);
}

void lineage_step(lineage *l, const lineage_event *e, lineage_actions *out)
{
    kept **k;

    switch (e->kind) {
    case LINEAGE_FORGET:
        if ((k = map_u64_find(&l->calls, e->call))) forget_call(l, *k, out);
        break;
    case LINEAGE_KEEP: on_keep(l, e, out); break;
    case LINEAGE_ENDED: on_ended(l, e->call, out); break;
    case LINEAGE_DROP: on_drop(l, e->object, out); break;
    case LINEAGE_NEED: on_need(l, e->object, out); break;
    }
}

size_t lineage_bytes(const lineage *l)
{
    return l->bytes;
}

size_t lineage_calls(const lineage *l)
{
    return l->calls.n;
}

bool lineage_knows(const lineage *l, uint64_t object)
{
    return map_u64_find(&l->things, object) != NULL;
}
