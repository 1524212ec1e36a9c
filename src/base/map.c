/* map.c - the table of entry numbers, once for both kinds of keys.
 *
 * What the kinds share sees an entry through `head`: its first words are the
 * hash and the key string, or the key number. A removal closes the gap in the
 * probe sequence by moving later entries back, so there are no tombstones and
 * a look-up never gets slower with age. */
#include "base/map.h"

#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

/* may_alias: the same bytes are entries of the caller's type. */
enum { SMALL_SLOTS = 1024 }; /* a table of so many is not worth shrinking */

typedef struct __attribute__((may_alias)) head {
    uint64_t hash; /* of strings; the number itself for numbers */
    char *key; /* strings only */
} head;

/* A key being looked for: its hash, and either a string or a number. */
typedef struct probe {
    uint64_t hash;
    const char *text; /* NULL: a number */
    uint64_t number;
} probe;

static probe probe_text(const char *key)
{
    return (probe){.hash = hash_bytes(key, strlen(key), 0), .text = key};
}

static probe probe_number(uint64_t key)
{
    return (probe){.hash = hash_u64(key), .number = key};
}

static head *entry_at(const void *at, size_t size, size_t i)
{
    return (head *)((char *)(uintptr_t)at + i * size);
}

static uint64_t entry_hash(const head *e, bool text)
{
    return text ? e->hash : hash_u64(e->hash);
}

static bool entry_is(const head *e, const probe *p)
{
    if (!p->text) return e->hash == p->number;
    return e->hash == p->hash && strcmp(e->key, p->text) == 0;
}

/* The slot of the key, or the empty one where its search ends. */
static uint32_t slot_of(const map_table *t, const void *at, size_t size, const probe *p)
{
    uint32_t mask = t->n_slots - 1, s = (uint32_t)p->hash & mask;

    while (t->slots[s] && !entry_is(entry_at(at, size, t->slots[s] - 1), p)) s = (s + 1) & mask;
    return s;
}

static void *seek_entry(const map_table *t, const void *at, size_t size, probe p)
{
    if (!t->n_slots) return NULL;
    uint32_t i = t->slots[slot_of(t, at, size, &p)];
    return i ? entry_at(at, size, i - 1) : NULL;
}

/* Fills an empty table with the n entries. */
static void refill_slots(map_table *t, const void *at, size_t n, size_t size, bool text)
{
    uint32_t mask = t->n_slots - 1;

    for (size_t i = 0; i < n; i++) {
        uint32_t s = (uint32_t)entry_hash(entry_at(at, size, i), text) & mask;
        while (t->slots[s]) s = (s + 1) & mask;
        t->slots[s] = (uint32_t)i + 1;
    }
}

/* A table of that many slots, at least 4/3 of the entries; returns where those are now. */
static void *resize_table(map_table *t, void *at, size_t n, size_t size, bool text, uint32_t n_slots)
{
    mem_free(t->slots);
    t->slots = mem_new(n_slots * sizeof *t->slots);
    t->n_slots = n_slots;
    t->cap = n_slots / 4 * 3;
    at = mem_resize(at, t->cap * size);
    refill_slots(t, at, n, size, text);
    return at;
}

/* Makes room for one more entry; returns where the entries are now. */
static void *grow_table(map_table *t, void *at, size_t n, size_t size, bool text)
{
    if (n < t->cap) return at;
    assert(n < UINT32_MAX / 4);
    return resize_table(t, at, n, size, text, t->n_slots ? t->n_slots * 2 : 8);
}

/* The entry of the key, added when there is none. grow_table() came first. */
static void *add_entry(map_table *t, void *at, size_t *n, size_t size, probe p)
{
    uint32_t s = slot_of(t, at, size, &p);

    if (t->slots[s]) return entry_at(at, size, t->slots[s] - 1);
    head *e = entry_at(at, size, *n);
    memset(e, 0, size);
    e->hash = p.text ? p.hash : p.number;
    if (p.text) e->key = mem_strdup(p.text);
    t->slots[s] = (uint32_t)++ * n;
    return e;
}

/* Empties slot s: every entry behind it that the gap would make unreachable
 * moves into the gap, which moves on. */
static void close_gap(map_table *t, const void *at, size_t size, uint32_t s, bool text)
{
    uint32_t mask = t->n_slots - 1, gap = s;

    for (s = (s + 1) & mask; t->slots[s]; s = (s + 1) & mask) {
        uint32_t home = (uint32_t)entry_hash(entry_at(at, size, t->slots[s] - 1), text) & mask;
        if (((s - home) & mask) < ((s - gap) & mask)) continue; /* its search starts behind the gap */
        t->slots[gap] = t->slots[s];
        gap = s;
    }
    t->slots[gap] = 0;
}

static bool drop_entry(map_table *t, void *at, size_t *n, size_t size, probe p)
{
    bool text = p.text != NULL;

    if (!t->n_slots) return false;
    uint32_t s = slot_of(t, at, size, &p), i = t->slots[s];
    if (!i) return false;
    head *e = entry_at(at, size, i - 1), *last = entry_at(at, size, *n - 1);
    char *owned = text ? e->key : NULL; /* p.text may be this very string */
    close_gap(t, at, size, s, text);
    if (e != last) {
        uint32_t mask = t->n_slots - 1, l = (uint32_t)entry_hash(last, text) & mask;
        while (t->slots[l] != *n) l = (l + 1) & mask;
        t->slots[l] = i;
        memcpy(e, last, size);
    }
    mem_free(owned);
    --*n;
    return true;
}

void *map_seek(const map_table *t, const void *at, size_t size, const char *key)
{
    return seek_entry(t, at, size, probe_text(key));
}

void *map_grow(map_table *t, void *at, size_t n, size_t size)
{
    return grow_table(t, at, n, size, true);
}

void *map_add(map_table *t, void *at, size_t *n, size_t size, const char *key)
{
    return add_entry(t, at, n, size, probe_text(key));
}

bool map_drop(map_table *t, void *at, size_t *n, size_t size, const char *key)
{
    return drop_entry(t, at, n, size, probe_text(key));
}

void *map_end(map_table *t, void *at, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++) mem_free(entry_at(at, size, i)->key);
    return map_u64_end(t, at);
}

void *map_u64_seek(const map_table *t, const void *at, size_t size, uint64_t key)
{
    return seek_entry(t, at, size, probe_number(key));
}

void *map_u64_grow(map_table *t, void *at, size_t n, size_t size)
{
    return grow_table(t, at, n, size, false);
}

void *map_u64_add(map_table *t, void *at, size_t *n, size_t size, uint64_t key)
{
    return add_entry(t, at, n, size, probe_number(key));
}

bool map_u64_drop(map_table *t, void *at, size_t *n, size_t size, uint64_t key)
{
    return drop_entry(t, at, n, size, probe_number(key));
}

void *map_u64_shrink(map_table *t, void *at, size_t n, size_t size)
{
    uint32_t n_slots = SMALL_SLOTS;

    if (t->n_slots <= SMALL_SLOTS || n >= t->cap / 8) return at;
    while (n_slots / 4 * 3 < 2 * n) n_slots *= 2; /* room to grow before it has to again */
    return resize_table(t, at, n, size, false, n_slots);
}

void *map_u64_end(map_table *t, void *at)
{
    mem_free(at);
    mem_free(t->slots);
    *t = (map_table){0};
    return NULL;
}
