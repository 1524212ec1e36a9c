/* extents.c - see extents.h. A segment holds at most some thousand blocks (what
 * is smaller travels inside messages), so a sorted array is both the simplest
 * and the fastest book. */
#include "store/extents.h"

#include <string.h>

void extents_init(extents *e, uint64_t size)
{
    *e = (extents){.size = size / EXTENTS_ALIGN * EXTENTS_ALIGN};
    if (e->size > 0) vec_push(&e->free, ((extent){.at = 0, .size = e->size}));
}

void extents_release(extents *e)
{
    vec_release(&e->free);
    map_u64_release(&e->blocks);
    *e = (extents){0};
}

bool extents_take(extents *e, uint64_t size, uint64_t *at)
{
    if (size > e->size) return false;
    uint64_t need = size == 0 ? EXTENTS_ALIGN : (size + EXTENTS_ALIGN - 1) / EXTENTS_ALIGN * EXTENTS_ALIGN;
    for (size_t i = 0; i < e->free.n; i++) {
        extent *f = &e->free.at[i];
        if (f->size < need) continue;
        *at = f->at;
        f->at += need;
        f->size -= need;
        if (f->size == 0) vec_remove(&e->free, i);
        e->used += need;
        *map_u64_put(&e->blocks, *at) = need;
        return true;
    }
    return false;
}

bool extents_give(extents *e, uint64_t at)
{
    uint64_t *known = map_u64_find(&e->blocks, at);
    size_t i = 0;

    if (!known) return false;
    extent block = {.at = at, .size = *known};
    map_u64_remove(&e->blocks, at);
    e->used -= block.size;
    while (i < e->free.n && e->free.at[i].at < at) i++;
    bool below = i > 0 && e->free.at[i - 1].at + e->free.at[i - 1].size == at;
    bool above = i < e->free.n && at + block.size == e->free.at[i].at;
    if (below && above) {
        e->free.at[i - 1].size += block.size + e->free.at[i].size;
        vec_remove(&e->free, i);
    } else if (below) {
        e->free.at[i - 1].size += block.size;
    } else if (above) {
        e->free.at[i].at = at;
        e->free.at[i].size += block.size;
    } else {
        vec_push(&e->free, block);
        memmove(&e->free.at[i + 1], &e->free.at[i], (e->free.n - 1 - i) * sizeof(extent));
        e->free.at[i] = block;
    }
    return true;
}
