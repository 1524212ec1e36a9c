/* store.c - see store.h. */
#include "store/store.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "os/shm.h"
#include "os/sys.h"
#include "store/extents.h"

#define SEGMENT_FIRST ((size_t)1 << 20) /* a process that makes little takes little */
#define SEGMENT_MOST  ((size_t)64 << 20) /* doubling ends here; larger objects get a segment of their own */

typedef struct segment {
    uint64_t id;
    char *at; /* NULL: not mapped */
    size_t size;
    int64_t pins;
    bool own, forgotten;
    extents book; /* of our own */
} segment;

struct store {
    store_source source;
    MAP_U64(segment *) segments;
    VEC(segment *) own; /* in the order in which they were made */
};

store *store_new(store_source source)
{
    store *s = mem_new(sizeof *s);
    s->source = source;
    return s;
}

static void segment_free(segment *g)
{
    shm_unmap(g->at, g->size);
    extents_release(&g->book);
    mem_free(g);
}

void store_free(store *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->segments.n; i++) segment_free(s->segments.at[i].value);
    map_u64_release(&s->segments);
    vec_release(&s->own);
    mem_free(s);
}

/* Maps a descriptor, which it takes over, as segment `id`. */
static manta_status segment_map(store *s, uint64_t id, int fd, bool own, segment **out)
{
    manta_status st;
    size_t size;
    void *at;
    if ((st = shm_size(fd, &size))) goto out;
    if ((st = shm_map(fd, size, own, &at))) goto out;
    if (own && (st = shm_seal_writes(fd))) {
        shm_unmap(at, size);
        goto out;
    }
    segment *g = mem_new(sizeof *g);
    *g = (segment){.id = id, .at = at, .size = size, .own = own};
    *map_u64_put(&s->segments, id) = g;
    if (own) {
        extents_init(&g->book, size);
        vec_push(&s->own, g);
    }
    *out = g;
out:
    os->close(fd);
    return st;
}

static manta_status segment_make(store *s, size_t size, segment **out)
{
    uint64_t id, have, used;
    store_usage(s, &have, &used);
    /* As much again as there is: few segments for much, little for little. */
    size_t want = have < SEGMENT_FIRST ? SEGMENT_FIRST : have > SEGMENT_MOST ? SEGMENT_MOST : (size_t)have;
    if (want < size) want = shm_round(size);
    int fd;
    manta_status st = s->source.make(s->source.ctx, want, &id, &fd);
    /* Near the limit a smaller one may still fit. */
    if (st == MANTA_ENOSPC && want > shm_round(size))
        st = s->source.make(s->source.ctx, shm_round(size), &id, &fd);
    if (st) return st;
    return segment_map(s, id, fd, true, out);
}

manta_status store_take(store *s, size_t size, store_place *place, void **at)
{
    segment *g = NULL;
    uint64_t offset = 0;
    if (size >= ((size_t)1 << 46)) return manta_fail(MANTA_ENOSPC, "an object of %zu bytes", size);
    for (size_t i = 0; i < s->own.n && !g; i++)
        if (extents_take(&s->own.at[i]->book, size, &offset)) g = s->own.at[i];
    if (!g) {
        TRY(segment_make(s, size, &g));
        if (!extents_take(&g->book, size, &offset))
            return manta_fail(MANTA_EINTERNAL, "a new segment of %zu bytes has no room for %zu", g->size,
                              size);
    }
    *place = (store_place){.segment = g->id, .at = offset};
    *at = g->at + offset;
    return MANTA_OK;
}

static void segment_drop(store *s, segment *g)
{
    map_u64_remove(&s->segments, g->id);
    segment_free(g);
}

/* An empty segment goes back when another empty one is left for what comes
 * next: its pages are warm, so one is kept. */
static void shrink(store *s, segment *emptied)
{
    size_t place = s->own.n, empty = 0;
    for (size_t i = 0; i < s->own.n; i++) {
        if (s->own.at[i]->book.used == 0) empty++;
        if (s->own.at[i] == emptied) place = i;
    }
    if (empty < 2 || place == s->own.n || emptied->pins > 0) return;
    uint64_t id = emptied->id;
    vec_remove(&s->own, place);
    segment_drop(s, emptied);
    s->source.give_back(s->source.ctx, id);
}

void store_give(store *s, store_place place)
{
    segment **g = map_u64_find(&s->segments, place.segment);
    if (!g || !(*g)->own || !extents_give(&(*g)->book, place.at)) return;
    if ((*g)->book.used == 0) shrink(s, *g);
}

manta_status store_pin(store *s, store_place place, size_t size, const void **at)
{
    segment **known = map_u64_find(&s->segments, place.segment), *g = known ? *known : NULL;
    if (!g) {
        int fd;
        TRY(s->source.open(s->source.ctx, place.segment, &fd));
        known = map_u64_find(&s->segments, place.segment); /* another thread may have been faster */
        if (known) {
            os->close(fd);
            g = *known;
        } else {
            TRY(segment_map(s, place.segment, fd, false, &g));
        }
    }
    if (place.at > g->size || size > g->size - place.at)
        return manta_fail(MANTA_ECORRUPT, "an object outside its segment");
    g->pins++;
    *at = g->at + place.at;
    return MANTA_OK;
}

void store_unpin(store *s, store_place place)
{
    segment **g = map_u64_find(&s->segments, place.segment);
    if (!g || (*g)->pins == 0) return;
    (*g)->pins--;
    if ((*g)->pins == 0 && (*g)->forgotten) segment_drop(s, *g);
}

void store_forget(store *s, uint64_t id)
{
    segment **g = map_u64_find(&s->segments, id);
    if (!g || (*g)->own) return;
    (*g)->forgotten = true;
    if ((*g)->pins == 0) segment_drop(s, *g);
}

void store_usage(const store *s, uint64_t *size, uint64_t *used)
{
    *size = *used = 0;
    for (size_t i = 0; i < s->own.n; i++) {
        *size += s->own.at[i]->size;
        *used += s->own.at[i]->book.used;
    }
}
