/* directory.c - see directory.h. */
#include "store/directory.h"

#include "base/map.h"
#include "base/mem.h"

typedef struct entry {
    directory_state state;
    uint32_t maker; /* 0: nobody has said so yet */
    store_place place;
    void *data;
    VEC(uint32_t) wanters;
} entry;

struct directory {
    MAP_U64(entry) entries;
    VEC(uint64_t) unknown; /* wanted, and nobody has said yet that it makes them */
    MAP_U64(char) gone; /* clients that are dead */
};

directory *directory_new(void)
{
    return mem_new(sizeof(directory));
}

void directory_free(directory *d)
{
    if (!d) return;
    for (size_t i = 0; i < d->entries.n; i++) vec_release(&d->entries.at[i].value.wanters);
    map_u64_release(&d->entries);
    map_u64_release(&d->gone);
    vec_release(&d->unknown);
    mem_free(d);
}

static entry *put_entry(directory *d, uint64_t object)
{
    entry *e = map_u64_put(&d->entries, object);

    if (e->state == DIRECTORY_NONE) e->state = DIRECTORY_PROMISED;
    return e;
}

static bool is_gone(const directory *d, uint32_t client)
{
    return map_u64_find(&d->gone, client) != NULL;
}

static void add_action(directory_actions *out, directory_action_kind kind, uint64_t object, uint32_t client)
{
    vec_push(out, ((directory_action){.kind = kind, .object = object, .client = client}));
}

static void leave_place(directory_actions *out, uint64_t object, uint32_t maker, store_place place)
{
    if (!place.segment) return;
    add_action(out, DIRECTORY_DO_LEAVE, object, maker);
    vec_last(out).place = place;
}

static void tell_wanters(entry *e, uint64_t object, directory_actions *out)
{
    for (size_t i = 0; i < e->wanters.n; i++) add_action(out, DIRECTORY_DO_TELL, object, e->wanters.at[i]);
    vec_release(&e->wanters);
}

static void break_entry(entry *e, uint64_t object, directory_why why, uint32_t client, directory_actions *out)
{
    e->state = DIRECTORY_BROKEN;
    add_action(out, DIRECTORY_DO_BREAK, object, client);
    vec_last(out).why = why;
    tell_wanters(e, object, out);
}

static void add_wanter(entry *e, uint32_t client)
{
    for (size_t i = 0; i < e->wanters.n; i++)
        if (e->wanters.at[i] == client) return;
    vec_push(&e->wanters, client);
}

static void on_add(directory *d, const directory_event *x, directory_actions *out)
{
    entry *e = put_entry(d, x->object);

    if (e->state == DIRECTORY_BROKEN || (e->state == DIRECTORY_READY && !x->maker_is_dead)) {
        leave_place(out, x->object, x->client, x->place);
        return;
    }
    bool again = e->state == DIRECTORY_READY;
    if (again) leave_place(out, x->object, e->maker, e->place);
    e->state = DIRECTORY_READY;
    e->maker = x->client;
    e->place = x->place;
    add_action(out, DIRECTORY_DO_TAKE, x->object, x->client);
    if (!again) add_action(out, DIRECTORY_DO_HOLD, x->object, x->client);
    tell_wanters(e, x->object, out);
}

static void on_missed(directory *d, const directory_event *x, directory_actions *out)
{
    entry *e = map_u64_find(&d->entries, x->object);
    uint32_t owner = (uint32_t)(x->object >> DIRECTORY_OWNER_SHIFT);

    if (!e) { /* it is not even promised: as for one that is wanted */
        e = put_entry(d, x->object);
        add_wanter(e, x->client);
        vec_push(&d->unknown, x->object);
        return;
    }
    bool same = e->place.segment == x->place.segment && e->place.at == x->place.at;
    if (e->state == DIRECTORY_READY && same && x->is_lost) {
        leave_place(out, x->object, e->maker, e->place);
        e->place = (store_place){0};
        e->state = DIRECTORY_LOST;
        add_wanter(e, x->client);
        if (is_gone(d, owner))
            break_entry(e, x->object, DIRECTORY_OWNER_DIED, owner, out);
        else
            add_action(out, DIRECTORY_DO_REBUILD, x->object, owner);
    } else if (e->state == DIRECTORY_READY || e->state == DIRECTORY_BROKEN) {
        add_action(out, DIRECTORY_DO_TELL, x->object,
                   x->client); /* it is elsewhere by now, or it was no loss */
    } else {
        add_wanter(e, x->client);
    }
}

static void on_free(directory *d, uint64_t object, directory_actions *out)
{
    entry *e = map_u64_find(&d->entries, object);

    if (!e) return;
    if (e->wanters.n > 0) break_entry(e, object, DIRECTORY_RELEASED, 0, out);
    if (e->state == DIRECTORY_READY) leave_place(out, object, e->maker, e->place);
    e->state = DIRECTORY_BROKEN; /* until directory_end() */
    e->place = (store_place){0};
    add_action(out, DIRECTORY_DO_FORGET, object, e->maker);
}

void directory_end(directory *d, uint64_t object)
{
    entry *e = map_u64_find(&d->entries, object);

    if (!e) return;
    vec_release(&e->wanters);
    map_u64_remove(&d->entries, object);
}

static void on_gone(directory *d, uint32_t client, directory_actions *out)
{
    *map_u64_put(&d->gone, client) = 1;
    for (size_t i = 0; i < d->entries.n; i++) {
        entry *e = &d->entries.at[i].value;
        uint64_t object = d->entries.at[i].key;
        if (e->state == DIRECTORY_PROMISED && e->maker == client)
            break_entry(e, object, DIRECTORY_MAKER_DIED, client, out);
        else if (e->state == DIRECTORY_LOST && object >> DIRECTORY_OWNER_SHIFT == client)
            break_entry(e, object, DIRECTORY_OWNER_DIED, client, out);
    }
}

static void on_pass(directory *d, size_t n, directory_actions *out)
{
    if (n > d->unknown.n) n = d->unknown.n;
    for (size_t i = 0; i < n; i++) {
        uint64_t object = d->unknown.at[i];
        entry *e = map_u64_find(&d->entries, object);
        if (!e || e->maker || e->state != DIRECTORY_PROMISED) continue;
        break_entry(e, object, DIRECTORY_UNKNOWN, 0, out);
        on_free(d, object, out);
    }
    for (size_t i = n; i < d->unknown.n; i++) d->unknown.at[i - n] = d->unknown.at[i];
    d->unknown.n -= n;
    map_u64_trim(&d->entries);
}

void directory_step(directory *d, const directory_event *x, directory_actions *out)
{
    entry *e;

    switch (x->kind) {
    case DIRECTORY_PROMISE:
        e = put_entry(d, x->object);
        if (e->state != DIRECTORY_PROMISED || e->maker) break;
        e->maker = x->client;
        if (is_gone(d, x->client)) break_entry(e, x->object, DIRECTORY_MAKER_DIED, x->client, out);
        break;
    case DIRECTORY_ADD: on_add(d, x, out); break;
    case DIRECTORY_FAIL:
        e = put_entry(d, x->object);
        if (e->state != DIRECTORY_PROMISED && e->state != DIRECTORY_LOST) break;
        e->state = DIRECTORY_BROKEN;
        add_action(out, DIRECTORY_DO_TAKE, x->object, x->client);
        tell_wanters(e, x->object, out);
        break;
    case DIRECTORY_WANT:
        e = put_entry(d, x->object);
        if (e->state == DIRECTORY_READY || e->state == DIRECTORY_BROKEN) {
            add_action(out, DIRECTORY_DO_TELL, x->object, x->client);
            break;
        }
        add_wanter(e, x->client);
        if (!e->maker) vec_push(&d->unknown, x->object);
        break;
    case DIRECTORY_MISSED: on_missed(d, x, out); break;
    case DIRECTORY_FREE: on_free(d, x->object, out); break;
    case DIRECTORY_GONE: on_gone(d, x->client, out); break;
    case DIRECTORY_PASS: on_pass(d, x->n, out); break;
    }
}

size_t directory_unknown(const directory *d)
{
    return d->unknown.n;
}

void **directory_data(directory *d, uint64_t object)
{
    entry *e = map_u64_find(&d->entries, object);

    return e ? &e->data : NULL;
}

directory_state directory_state_of(const directory *d, uint64_t object)
{
    const entry *e = map_u64_find(&d->entries, object);

    return e ? e->state : DIRECTORY_NONE;
}

uint32_t directory_maker(const directory *d, uint64_t object)
{
    const entry *e = map_u64_find(&d->entries, object);

    return e ? e->maker : 0;
}

size_t directory_count(const directory *d)
{
    return d->entries.n;
}

uint64_t directory_at(const directory *d, size_t i)
{
    return d->entries.at[i].key;
}
