/* store.c - see store.h. */
#include "store/store.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "os/shm.h"
#include "os/sys.h"
#include "store/extents.h"
#include "store/sizes.h"

typedef struct segment {
    uint64_t id;
    char *at; /* NULL: not mapped */
    size_t size;
    int64_t pins; /* blocks being written, and reads */
    uint32_t given; /* times it was made or opened, as the source counts */
    bool own, forgotten;
    bool retired; /* our own, and given away once: read only from now on */
    bool asked; /* to be unmapped when the last pin goes */
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
    shm_unmap(g->at, g->size); /* NULL: it is not mapped */
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

/* Maps a descriptor, which it takes over, as segment `id`, which is known here
 * (and comes back) or not. */
static manta_status segment_map(store *s, uint64_t id, int fd, bool own, segment **out)
{
    manta_status st;
    segment **known = map_u64_find(&s->segments, id), *g = known ? *known : NULL;
    size_t size;
    void *at;

    if ((st = shm_size(fd, &size))) goto out;
    if (g && g->size != size) {
        st = manta_fail(MANTA_ECORRUPT, "a segment of %zu bytes came back with %zu", g->size, size);
        goto out;
    }
    if ((st = shm_map(fd, size, own, &at))) goto out;
    if (own && (st = shm_seal_writes(fd))) {
        shm_unmap(at, size);
        goto out;
    }
    if (!g) {
        g = mem_new(sizeof *g);
        *g = (segment){.id = id, .size = size, .own = own};
        *map_u64_put(&s->segments, id) = g;
        if (own) {
            extents_init(&g->book, size);
            vec_push(&s->own, g);
        }
    }
    g->at = at;
    g->given = 1;
    g->asked = false;
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
    size_t want = have < STORE_SEGMENT_FIRST  ? STORE_SEGMENT_FIRST
                  : have > STORE_SEGMENT_MOST ? STORE_SEGMENT_MOST
                                              : (size_t)have;
    if (want < size) want = shm_round(size);
    int fd;
    TRY(s->source.make(s->source.ctx, shm_round(size), want, &id, &fd));
    return segment_map(s, id, fd, true, out);
}

manta_status store_take(store *s, size_t size, store_place *place, void **at)
{
    segment *g = NULL;
    uint64_t offset = 0;

    if (size >= STORE_OBJECT_LIMIT)
        return manta_fail(MANTA_ENOSPC,
                          "an object of %zu bytes is to be stored, fewer than 2^46 are possible", size);
    for (size_t i = 0; i < s->own.n && !g; i++)
        if (!s->own.at[i]->retired && extents_take(&s->own.at[i]->book, size, &offset)) g = s->own.at[i];
    if (!g) {
        TRY(segment_make(s, size, &g));
        if (!extents_take(&g->book, size, &offset))
            return manta_fail(MANTA_EINTERNAL, "a new segment of %zu bytes has no room for %zu", g->size,
                              size);
    }
    *place = (store_place){.segment = g->id, .at = offset};
    *at = g->at + offset;
    g->pins++;
    return MANTA_OK;
}

void store_seal(store *s, store_place place)
{
    store_unpin(s, place);
}

static void segment_drop(store *s, segment *g)
{
    map_u64_remove(&s->segments, g->id);
    segment_free(g);
}

/* An empty segment goes back when it cannot be written any more, or when
 * another empty one is left for what comes next: its pages are warm, so one is
 * kept. */
static void shrink_own(store *s, segment *emptied)
{
    size_t place = s->own.n, empty = 0;

    for (size_t i = 0; i < s->own.n; i++) {
        if (s->own.at[i]->book.used == 0 && !s->own.at[i]->retired) empty++;
        if (s->own.at[i] == emptied) place = i;
    }
    if ((empty < 2 && !emptied->retired) || place == s->own.n || emptied->pins > 0) return;
    uint64_t id = emptied->id;
    vec_remove(&s->own, place);
    segment_drop(s, emptied);
    s->source.give_back(s->source.ctx, id);
}

/* Unmaps a segment that is not in use; how often it had been given. One of our
 * own that is empty goes back altogether. */
static uint32_t segment_close(store *s, segment *g)
{
    uint32_t n = g->given;

    if (!g->own) {
        segment_drop(s, g);
        return n;
    }
    shm_unmap(g->at, g->size);
    g->at = NULL;
    g->given = 0;
    g->asked = false;
    g->retired = true;
    if (g->book.used == 0) shrink_own(s, g);
    return n;
}

void store_give(store *s, store_place place)
{
    segment **g = map_u64_find(&s->segments, place.segment);

    if (!g || !(*g)->own || !extents_give(&(*g)->book, place.at)) return;
    if ((*g)->book.used == 0) shrink_own(s, *g);
}

manta_status store_pin(store *s, store_place place, size_t size, const void **at)
{
    segment **known = map_u64_find(&s->segments, place.segment), *g = known ? *known : NULL;

    if (!g || !g->at) {
        int fd;
        TRY(s->source.open(s->source.ctx, place.segment, &fd));
        known = map_u64_find(&s->segments, place.segment); /* another thread may have been faster */
        if (known && (*known)->at) {
            os->close(fd);
            g = *known;
            g->given++;
        } else {
            TRY(segment_map(s, place.segment, fd, false, &g));
        }
    }
    if (place.at > g->size || size > g->size - place.at)
        return manta_fail(MANTA_ECORRUPT,
                          "an object of %zu bytes at %llu lies outside segment %llu, which has %zu bytes",
                          size, (unsigned long long)place.at, (unsigned long long)place.segment, g->size);
    g->pins++;
    *at = g->at + place.at;
    return MANTA_OK;
}

void store_unpin(store *s, store_place place)
{
    segment **g = map_u64_find(&s->segments, place.segment);

    if (!g || (*g)->pins == 0) return;
    if (--(*g)->pins > 0) return;
    if ((*g)->forgotten)
        segment_drop(s, *g);
    else if ((*g)->own && (*g)->retired && (*g)->book.used == 0)
        shrink_own(s, *g); /* it was emptied while it was read */
    else if ((*g)->asked)
        s->source.let_go(s->source.ctx, place.segment, segment_close(s, *g));
}

uint32_t store_ask(store *s, uint64_t id)
{
    segment **g = map_u64_find(&s->segments, id);

    if (!g || !(*g)->at) return 0;
    (*g)->asked = true;
    return (*g)->pins > 0 ? 0 : segment_close(s, *g);
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
