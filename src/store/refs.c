/* refs.c - see refs.h. */
#include "store/refs.h"

#include "base/map.h"
#include "base/mem.h"

typedef VEC(uint64_t) ids;

typedef struct entry {
    int64_t total; /* holds of clients and of containing objects */
    refs_client maker;
    bool added, candidate;
    ids inner;
} entry;

typedef struct holder {
    bool gone;
    MAP_U64(int64_t) counts; /* by object; never 0 */
} holder;

struct refs_book {
    MAP_U64(entry) entries;
    MAP_U64(holder) holders; /* a dead one stays, empty, to be known as dead */
    ids candidates;
};

refs_book *refs_new(void)
{
    return mem_new(sizeof(refs_book));
}

void refs_free(refs_book *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->entries.n; i++) vec_release(&r->entries.at[i].value.inner);
    for (size_t i = 0; i < r->holders.n; i++) map_u64_release(&r->holders.at[i].value.counts);
    map_u64_release(&r->entries);
    map_u64_release(&r->holders);
    vec_release(&r->candidates);
    mem_free(r);
}

/* Adds n to an object's total, which may make it a candidate. */
static void count(refs_book *r, uint64_t object, int64_t n)
{
    entry *e = map_u64_put(&r->entries, object);
    e->total += n;
    if (e->total <= 0 && !e->candidate) {
        e->candidate = true;
        vec_push(&r->candidates, object);
    }
}

static void hold(refs_book *r, uint64_t object, refs_client client, int64_t n)
{
    holder *h = map_u64_put(&r->holders, client);
    if (h->gone) {
        count(r, object, 0); /* it may be the only trace of the object */
        return;
    }
    int64_t *c = map_u64_put(&h->counts, object);
    *c += n;
    if (*c == 0) map_u64_remove(&h->counts, object);
    count(r, object, n);
}

static void gone(refs_book *r, refs_client client)
{
    holder *h = map_u64_put(&r->holders, client);
    h->gone = true;
    for (size_t i = 0; i < h->counts.n; i++) count(r, h->counts.at[i].key, -h->counts.at[i].value);
    map_u64_release(&h->counts);
}

/* Freeing one object may make those it contains candidates: they join the end
 * of the list that is being walked. */
static void settle(refs_book *r, refs_actions *out)
{
    for (size_t i = 0; i < r->candidates.n; i++) {
        uint64_t object = r->candidates.at[i];
        entry *e = map_u64_find(&r->entries, object);
        if (!e) continue;
        e->candidate = false;
        if (e->total > 0) continue;
        ids inner = e->inner;
        vec_push(out, ((refs_freed){.object = object, .maker = e->maker, .known = e->added}));
        map_u64_remove(&r->entries, object);
        for (size_t k = 0; k < inner.n; k++) count(r, inner.at[k], -1);
        vec_release(&inner);
    }
    vec_clear(&r->candidates);
}

void refs_step(refs_book *r, refs_event e, refs_actions *out)
{
    switch (e.kind) {
    case REFS_ADD: {
        entry *x = map_u64_put(&r->entries, e.object);
        x->added = true;
        x->maker = e.client;
        count(r, e.object, 0);
        break;
    }
    case REFS_HOLD: hold(r, e.object, e.client, 1); break;
    case REFS_DROP: hold(r, e.object, e.client, -1); break;
    case REFS_CONTAIN: {
        count(r, e.inner, 1); /* first: it may move the entries */
        entry *x = map_u64_put(&r->entries, e.object);
        vec_push(&x->inner, e.inner);
        break;
    }
    case REFS_GONE: gone(r, e.client); break;
    case REFS_SETTLE: settle(r, out); break;
    }
}

bool refs_has_candidates(const refs_book *r)
{
    return r->candidates.n > 0;
}

size_t refs_count(const refs_book *r)
{
    return r->entries.n;
}

int64_t refs_total(const refs_book *r, uint64_t object)
{
    const entry *e = map_u64_find(&r->entries, object);
    return e ? e->total : 0;
}

bool refs_knows(const refs_book *r, uint64_t object)
{
    const entry *e = map_u64_find(&r->entries, object);
    return e && e->added;
}
