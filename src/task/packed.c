/* packed.c - see packed.h. */
#include "task/packed.h"

#include <string.h>

#include "base/mem.h"

typedef struct table {
    uint64_t head;
    uint32_t blocks, refs, actors, zero;
} table;

struct packed_index {
    table t;
    uint64_t head_at; /* offset */
    const void *at; /* where the pointers of `blocks` point to; NULL: they are not set */
    const void *copy; /* of bytes that are not aligned; NULL: there is none */
    manta_packed_block *blocks;
    uint64_t *begins; /* offsets of blocks */
    uint64_t ids[];
};

static uint64_t aligned(uint64_t at)
{
    return (at + MANTA_PACKED_ALIGN - 1) / MANTA_PACKED_ALIGN * MANTA_PACKED_ALIGN;
}

/* Bytes before the head. The counts are within their limits, so that nothing overflows. */
static uint64_t table_size(const table *t)
{
    return sizeof *t + ((uint64_t)t->refs + t->actors + t->blocks) * sizeof(uint64_t);
}

/* ---- writing ---- */

static table table_of(const manta_packed *p)
{
    return (table){.head = p->head_size,
                   .blocks = (uint32_t)p->n_blocks,
                   .refs = (uint32_t)p->n_refs,
                   .actors = (uint32_t)p->n_actors};
}

static manta_status check_part(const char *what, const void *at, size_t n, bool may_be_null)
{
    if (n == 0 || at || may_be_null) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "a packed value has %zu %s at NULL, expected their address", n, what);
}

static manta_status check_counts(const manta_packed *p)
{
    if (p->n_blocks > MANTA_PACKED_BLOCKS)
        return manta_fail(MANTA_EINVAL, "a packed value has %zu blocks, at most %d are allowed", p->n_blocks,
                          MANTA_PACKED_BLOCKS);
    if (p->n_refs > MANTA_PACKED_INNER || p->n_actors > MANTA_PACKED_INNER - p->n_refs)
        return manta_fail(
            MANTA_EINVAL,
            "a packed value has %zu references and %zu handles, at most %d together are allowed", p->n_refs,
            p->n_actors, MANTA_PACKED_INNER);
    TRY(check_part("blocks", p->blocks, p->n_blocks, false));
    TRY(check_part("references", p->refs, p->n_refs, false));
    return check_part("handles", p->actors, p->n_actors, false);
}

manta_status packed_measure(const manta_packed *p, bool in_place, uint64_t *size)
{
    const uint64_t most = (uint64_t)1 << 62; /* no rounding up overflows */

    if (!p) return manta_fail(MANTA_EINVAL, "a packed value is at NULL, expected its address");
    TRY(check_counts(p));
    TRY(check_part("bytes of a head", p->head, p->head_size, in_place));
    const table t = table_of(p);
    uint64_t end = table_size(&t);
    bool fits = p->head_size <= most - end;
    end += fits ? p->head_size : 0;
    for (size_t i = 0; i < p->n_blocks && fits; i++) {
        TRY(check_part("bytes of a block", p->blocks[i].at, p->blocks[i].size, in_place));
        end = aligned(end);
        fits = end <= most && p->blocks[i].size <= most - end;
        end += fits ? p->blocks[i].size : 0;
    }
    if (!fits)
        return manta_fail(MANTA_EINVAL, "the parts of a packed value have more than 2^62 bytes together");
    *size = end;
    return MANTA_OK;
}

static void copy_part(char *to, const void *from, size_t n)
{
    if (n > 0 && from) memcpy(to, from, n);
}

void packed_copy(const manta_packed *p, void *to)
{
    const table t = table_of(p);
    char *at = to;
    uint64_t end = table_size(&t) + t.head;
    char *ends = at + sizeof t + ((uint64_t)t.refs + t.actors) * sizeof(uint64_t);

    memcpy(at, &t, sizeof t);
    copy_part(at + sizeof t, p->refs, p->n_refs * sizeof *p->refs);
    copy_part(at + sizeof t + p->n_refs * sizeof *p->refs, p->actors, p->n_actors * sizeof *p->actors);
    copy_part(at + table_size(&t), p->head, p->head_size);
    for (size_t i = 0; i < p->n_blocks; i++) {
        uint64_t begin = aligned(end);
        memset(at + end, 0, begin - end); /* nobody's old bytes travel */
        copy_part(at + begin, p->blocks[i].at, p->blocks[i].size);
        end = begin + p->blocks[i].size;
        memcpy(ends + i * sizeof end, &end, sizeof end);
    }
}

void packed_places(const manta_packed *p, void *to, void **head, void **blocks)
{
    const table t = table_of(p);
    uint64_t end = table_size(&t) + t.head;

    if (head) *head = (char *)to + table_size(&t);
    for (size_t i = 0; i < p->n_blocks && blocks; i++) {
        blocks[i] = (char *)to + aligned(end);
        end = aligned(end) + p->blocks[i].size;
    }
}

/* ---- reading ---- */

/* Copies the numbers at the beginning; false: there cannot be what they say. */
static bool table_read(const void *at, uint64_t size, table *t)
{
    if (size < sizeof *t) return false;
    memcpy(t, at, sizeof *t);
    if (t->zero != 0 || t->blocks > MANTA_PACKED_BLOCKS || t->refs > MANTA_PACKED_INNER ||
        t->actors > MANTA_PACKED_INNER - t->refs)
        return false;
    return table_size(t) <= size && t->head <= size - table_size(t);
}

/* Follows the ends of the blocks; begins and sizes go to *x, which may be NULL. */
static bool blocks_read(const void *at, uint64_t size, const table *t, packed_index *x)
{
    const char *ends = (const char *)at + sizeof *t + ((uint64_t)t->refs + t->actors) * sizeof(uint64_t);
    uint64_t last = table_size(t) + t->head;

    for (uint32_t i = 0; i < t->blocks; i++) {
        uint64_t begin = aligned(last), end;
        memcpy(&end, ends + (size_t)i * sizeof end, sizeof end);
        if (end < begin || end > size) return false;
        if (x) {
            x->begins[i] = begin;
            x->blocks[i].size = (size_t)(end - begin);
        }
        last = end;
    }
    return last == size;
}

bool packed_is_sound(const void *at, uint64_t size)
{
    table t;

    return table_read(at, size, &t) && blocks_read(at, size, &t, NULL);
}

uint64_t packed_inner(const void *at, const uint64_t **ids)
{
    table t;

    memcpy(&t, at, sizeof t);
    *ids = (const uint64_t *)((const char *)at + sizeof t);
    return (uint64_t)t.refs + t.actors;
}

packed_index *packed_index_new(const void *at, uint64_t size)
{
    table t;

    if (!table_read(at, size, &t)) return NULL;
    const size_t inner = (size_t)t.refs + t.actors;
    const bool copies = (uintptr_t)at % MANTA_PACKED_ALIGN != 0;
    const size_t bytes = sizeof(packed_index) + inner * sizeof(uint64_t) +
                         t.blocks * (sizeof(manta_packed_block) + sizeof(uint64_t));
    packed_index *x = mem_new(bytes + (copies ? (size_t)size + MANTA_PACKED_ALIGN : 0));
    x->t = t;
    x->head_at = table_size(&t);
    x->begins = x->ids + inner;
    x->blocks = (manta_packed_block *)(x->begins + t.blocks);
    memcpy(x->ids, (const char *)at + sizeof t, inner * sizeof(uint64_t));
    if (!blocks_read(at, size, &t, x)) {
        mem_free(x);
        return NULL;
    }
    if (copies) {
        char *copy = (char *)aligned((uintptr_t)x + bytes);
        memcpy(copy, at, (size_t)size);
        x->copy = copy;
    }
    return x;
}

uint64_t packed_index_inner(const packed_index *x, const uint64_t **ids)
{
    *ids = x->ids;
    return (uint64_t)x->t.refs + x->t.actors;
}

void packed_view(packed_index *x, const void *bytes, manta_packed *out)
{
    const char *at = x->copy ? x->copy : bytes;

    if (x->at != at) /* another thread may be reading the same pointers */
        for (uint32_t i = 0; i < x->t.blocks; i++) x->blocks[i].at = at + x->begins[i];
    x->at = at;
    *out = (manta_packed){.head = at + x->head_at,
                          .head_size = (size_t)x->t.head,
                          .blocks = x->blocks,
                          .n_blocks = x->t.blocks,
                          .refs = (const manta_ref *)x->ids,
                          .n_refs = x->t.refs,
                          .actors = (const manta_actor *)(x->ids + x->t.refs),
                          .n_actors = x->t.actors};
}
