/* inner.c - see inner.h. */
#include "task/inner.h"

#include <manta/packed.h>

#include "task/object.h"

static bool packed_at(const manta_packed *p, size_t i, uint64_t *id)
{
    if (i >= p->n_refs + p->n_actors) return false;
    *id = i < p->n_refs ? p->refs[i].id : p->actors[i - p->n_refs].id;
    return true;
}

bool inner_at(const manta_arg *a, size_t i, uint64_t *id)
{
    switch (a->kind) {
    case MANTA_KIND_ACTOR: *id = a->as.id; return i == 0;
    case MANTA_KIND_REFS:
        if (i < a->as.bytes.n) *id = ((const manta_ref *)a->as.bytes.at)[i].id;
        return i < a->as.bytes.n;
    case MANTA_KIND_PACKED: return packed_at(a->as.packed, i, id);
    default: return false;
    }
}

bool inner_exists(const manta_arg *a)
{
    uint64_t id;

    for (size_t i = 0; inner_at(a, i, &id); i++)
        if (!object_find(id)) return false;
    return true;
}

void inner_pin(const manta_arg *a)
{
    uint64_t id;

    for (size_t i = 0; inner_at(a, i, &id); i++) {
        object *o = object_find(id);
        if (o) o->pins++;
    }
}

void inner_unpin(const manta_arg *a)
{
    uint64_t id;

    for (size_t i = 0; inner_at(a, i, &id); i++) {
        object *o = object_find(id);
        if (o) object_unpin(o);
    }
}
