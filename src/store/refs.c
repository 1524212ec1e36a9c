/* refs.c - see refs.h. */
#include "store/refs.h"

#include "base/map.h"
#include "base/mem.h"
#include "store/sizes.h"

typedef VEC(uint64_t) ids;

/* How many holds of a client an object has. Most objects have one or two
 * holders, which lie in the entry itself: a count costs one look-up. */
typedef struct share {
    refs_client client;
    int32_t n;
} share;

typedef struct entry {
    int64_t total; /* holds of clients and of containing objects */
    refs_client maker;
    bool added, candidate;
    uint64_t changed; /* refs_changes() when a message last named it */
    share few[REFS_FEW]; /* n 0: free */
    VEC(share) more;
    ids inner;
} entry;

struct refs_book {
    MAP_U64(entry) entries;
    MAP_U64(char) gone; /* clients that are dead */
    ids candidates; /* in the order in which they arose */
    uint64_t changes;
};

refs_book *refs_new(void)
{
    return mem_new(sizeof(refs_book));
}

void refs_free(refs_book *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->entries.n; i++) {
        vec_release(&r->entries.at[i].value.inner);
        vec_release(&r->entries.at[i].value.more);
    }
    map_u64_release(&r->entries);
    map_u64_release(&r->gone);
    vec_release(&r->candidates);
    mem_free(r);
}

/* An object that nobody holds is listed, once. */
static void add_candidate(entry *e, uint64_t object, ids *to)
{
    if (e->total > 0 || e->candidate) return;
    e->candidate = true;
    vec_push(to, object);
}

/* A message adds n to an object's total, which may make it a candidate. */
static void count_entry(refs_book *r, entry *e, uint64_t object, int64_t n)
{
    e->total += n;
    e->changed = ++r->changes;
    add_candidate(e, object, &r->candidates);
}

static void count_object(refs_book *r, uint64_t object, int64_t n)
{
    count_entry(r, map_u64_put(&r->entries, object), object, n);
}

/* The client's share; NULL when it has none, with a free place in *empty. */
static share *share_find(entry *e, refs_client client, share **empty)
{
    *empty = NULL;
    for (size_t i = 0; i < REFS_FEW + e->more.n; i++) {
        share *s = i < REFS_FEW ? &e->few[i] : &e->more.at[i - REFS_FEW];
        if (s->n != 0 && s->client == client) return s;
        if (s->n == 0 && !*empty) *empty = s;
    }
    return NULL;
}

static share *share_of(entry *e, refs_client client)
{
    share *empty, *s = share_find(e, client, &empty);

    if (s) return s;
    if (!empty) {
        vec_push(&e->more, ((share){0}));
        empty = &vec_last(&e->more);
    }
    empty->client = client;
    return empty;
}

static void hold_object(refs_book *r, uint64_t object, refs_client client, int32_t n)
{
    entry *e = map_u64_put(&r->entries, object);

    if (r->gone.n > 0 && map_u64_find(&r->gone, client)) {
        count_entry(r, e, object, 0); /* it may be the only trace of the object */
        return;
    }
    share_of(e, client)->n += n;
    count_entry(r, e, object, n);
}

/* All entries are looked at: a death is rare beside a hold. */
static void drop_client(refs_book *r, refs_client client)
{
    *map_u64_put(&r->gone, client) = 1;
    for (size_t i = 0; i < r->entries.n; i++) {
        entry *e = &r->entries.at[i].value;
        share *empty, *s = share_find(e, client, &empty);
        if (!s) continue;
        int32_t n = s->n;
        s->n = 0;
        count_entry(r, e, r->entries.at[i].key, -n);
    }
}

/* Looks at the candidates, and at those that contained objects become by their
 * freeing: whoever has a reference out of one held it, and said what it took
 * before it let go. What a message has named since so many changes stays: of those
 * that were sent before it some may be unread. */
static void settle_candidates(refs_book *r, uint64_t changes, refs_actions *out)
{
    ids all = r->candidates, later = {0};

    for (size_t i = 0; i < all.n; i++) {
        uint64_t object = all.at[i];
        entry *e = map_u64_find(&r->entries, object);
        if (!e) continue;
        e->candidate = false;
        if (e->total > 0) continue;
        if (e->changed > changes) {
            add_candidate(e, object, &later);
            continue;
        }
        ids inner = e->inner;
        vec_release(&e->more);
        vec_push(out, ((refs_freed){.object = object, .maker = e->maker, .known = e->added}));
        map_u64_remove(&r->entries, object);
        for (size_t k = 0; k < inner.n; k++) {
            entry *x = map_u64_find(&r->entries, inner.at[k]);
            if (!x) continue;
            x->total--;
            add_candidate(x, inner.at[k], &all);
        }
        vec_release(&inner);
    }
    vec_release(&all);
    r->candidates = later;
    if (!later.n) map_u64_trim(&r->entries); /* a burst of objects is over */
}

void refs_step(refs_book *r, refs_event e, refs_actions *out)
{
    switch (e.kind) {
    case REFS_ADD: {
        entry *x = map_u64_put(&r->entries, e.object);
        x->added = true;
        x->maker = e.client;
        count_entry(r, x, e.object, 0);
        break;
    }
    case REFS_HOLD: hold_object(r, e.object, e.client, 1); break;
    case REFS_DROP: hold_object(r, e.object, e.client, -1); break;
    case REFS_CONTAIN: {
        count_object(r, e.inner, 1); /* first: it may move the entries */
        entry *x = map_u64_put(&r->entries, e.object);
        vec_push(&x->inner, e.inner);
        break;
    }
    case REFS_GONE: drop_client(r, e.client); break;
    case REFS_SETTLE: settle_candidates(r, e.changes, out); break;
    }
}

uint64_t refs_changes(const refs_book *r)
{
    return r->changes;
}

size_t refs_candidates(const refs_book *r)
{
    return r->candidates.n;
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

int64_t refs_beside(const refs_book *r, uint64_t object, refs_client client)
{
    entry *e = map_u64_find(&r->entries, object);
    share *empty;
    const share *own = e ? share_find(e, client, &empty) : NULL;

    return e ? e->total - (own ? own->n : 0) : 0;
}

bool refs_knows(const refs_book *r, uint64_t object)
{
    const entry *e = map_u64_find(&r->entries, object);

    return e && e->added;
}
