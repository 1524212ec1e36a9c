/* spill.c - see spill.h. */
#include "store/spill.h"

#include "base/map.h"
#include "base/mem.h"

typedef enum state { IN_MEMORY, WRITING, ON_DISK, READING, LOST } state;

typedef struct holder {
    uint32_t client;
    uint32_t n; /* times it was given */
    bool asked, busy;
    int64_t until; /* asked: when it counts as busy; busy: when to ask again */
} holder;

typedef struct opener {
    uint32_t client;
    uint64_t request;
} opener;

typedef struct segment {
    state state;
    bool has_file, dropped; /* dropped: ends with what is under way */
    uint64_t size, used_at; /* used_at: counts gives, for the order of use */
    VEC(holder) holders;
    VEC(opener) openers; /* wait until it is read back */
} segment;

/* Somebody needs room. segment 0: for a new one. */
typedef struct need {
    uint32_t client;
    uint64_t request, segment, size;
    int64_t since, patience; /* when it came, and how long it waits for others to let go */
} need;

struct spill_book {
    uint64_t memory, disk; /* limits */
    spill_usage use;
    uint64_t next_segment, uses;
    MAP_U64(segment *) segments;
    VEC(need) needs; /* in order */
    int64_t patience; /* of the next request */
    int64_t refused_at; /* when the last one had waited in vain */
    int64_t no_write_until; /* the disk was full */
};

spill_book *spill_new(uint64_t memory, uint64_t disk)
{
    spill_book *b = mem_new(sizeof *b);

    b->memory = memory;
    b->disk = disk;
    b->patience = SPILL_WAIT_NS;
    return b;
}

static void segment_free(segment *g)
{
    vec_release(&g->holders);
    vec_release(&g->openers);
    mem_free(g);
}

void spill_free(spill_book *b)
{
    if (!b) return;
    for (size_t i = 0; i < b->segments.n; i++) segment_free(b->segments.at[i].value);
    map_u64_release(&b->segments);
    vec_release(&b->needs);
    mem_free(b);
}

static segment *find_segment(const spill_book *b, uint64_t id)
{
    segment **g = map_u64_find(&b->segments, id);

    return g && !(*g)->dropped ? *g : NULL;
}

static holder *holder_of(const segment *g, uint32_t client)
{
    for (size_t i = 0; i < g->holders.n; i++)
        if (g->holders.at[i].client == client) return &g->holders.at[i];
    return NULL;
}

static bool has_memory(const segment *g)
{
    return g->state == IN_MEMORY || g->state == WRITING || g->state == READING;
}

static void add_action(spill_actions *out, spill_action_kind kind, uint32_t client, uint64_t request,
                       uint64_t id)
{
    vec_push(out, ((spill_action){.kind = kind, .client = client, .request = request, .segment = id}));
}

static void refuse_request(spill_actions *out, uint32_t client, uint64_t request, uint64_t id, spill_why why)
{
    add_action(out, SPILL_DO_REFUSE, client, request, id);
    vec_last(out).why = why;
}

/* ---- giving and taking ---- */

static void hold_segment(spill_book *b, segment *g, uint32_t client)
{
    holder *h = holder_of(g, client);

    g->used_at = ++b->uses;
    if (!h) {
        vec_push(&g->holders, ((holder){.client = client}));
        h = &vec_last(&g->holders);
    }
    h->n++;
    h->asked = h->busy = false;
}

static void give_segment(spill_book *b, segment *g, uint64_t id, uint32_t client, uint64_t request,
                         spill_actions *out)
{
    hold_segment(b, g, client);
    add_action(out, SPILL_DO_GIVE, client, request, id);
}

static void give_all(spill_book *b, segment *g, uint64_t id, spill_actions *out)
{
    for (size_t i = 0; i < g->openers.n; i++)
        give_segment(b, g, id, g->openers.at[i].client, g->openers.at[i].request, out);
    vec_clear(&g->openers);
}

static void refuse_all(segment *g, uint64_t id, spill_why why, spill_actions *out)
{
    for (size_t i = 0; i < g->openers.n; i++)
        refuse_request(out, g->openers.at[i].client, g->openers.at[i].request, id, why);
    vec_clear(&g->openers);
}

static void leave_memory(spill_book *b, segment *g, uint64_t id, spill_actions *out)
{
    g->state = ON_DISK;
    b->use.memory -= g->size;
    b->use.on_disk++;
    add_action(out, SPILL_DO_CLOSE, 0, 0, id);
}

static void drop_file(spill_book *b, segment *g)
{
    if (g->has_file) b->use.disk -= g->size;
    g->has_file = false;
}

/* Something has left, or somebody has let go: it is worth waiting again, for those that wait already too. */
static void grow_patient(spill_book *b)
{
    b->patience = SPILL_WAIT_NS;
    for (size_t i = 0; i < b->needs.n; i++) b->needs.at[i].patience = SPILL_WAIT_NS;
}

/* x has waited in vain: the next ones wait half as long. Those that wait already keep what they were given, and
 * halve nothing twice. */
static void grow_impatient(spill_book *b, const need *x, int64_t now)
{
    int64_t half = x->patience / 2 > SPILL_LEAST_NS ? x->patience / 2 : SPILL_LEAST_NS;

    if (half < b->patience) b->patience = half;
    b->refused_at = now;
}

static void add_need(spill_book *b, need x)
{
    if (x.since - b->refused_at > SPILL_WAIT_NS)
        b->patience = SPILL_WAIT_NS; /* things may have changed since */
    x.patience = b->patience;
    vec_push(&b->needs, x);
}

static void holder_leaves(spill_book *b, segment *g, holder *h)
{
    vec_remove(&g->holders, (size_t)(h - g->holders.at));
    grow_patient(b);
}

/* The segment is no more. What is being copied ends first. */
static void end_segment(spill_book *b, uint64_t id, segment *g, spill_actions *out)
{
    g->dropped = true;
    grow_patient(b);
    for (size_t i = 0; i < g->holders.n; i++)
        add_action(out, SPILL_DO_TELL_GONE, g->holders.at[i].client, 0, id);
    vec_clear(&g->holders);
    refuse_all(g, id, SPILL_NO_SEGMENT, out);
    for (size_t i = 0; i < b->needs.n;) {
        if (b->needs.at[i].segment == id)
            vec_remove(&b->needs, i);
        else
            i++;
    }
    if (g->state == WRITING || g->state == READING) return;
    if (has_memory(g)) b->use.memory -= g->size;
    if (g->state == ON_DISK) b->use.on_disk--;
    drop_file(b, g);
    map_u64_remove(&b->segments, id);
    segment_free(g);
    add_action(out, SPILL_DO_END, 0, 0, id);
}

/* ---- making room ---- */

/* The segment that was used longest ago among those of a kind, 0 for none:
 * free to leave (nobody holds it), or held by some who were not asked yet. */
static uint64_t find_oldest(const spill_book *b, bool held, int64_t now)
{
    uint64_t best = 0, used_at = UINT64_MAX;

    for (size_t i = 0; i < b->segments.n; i++) {
        const segment *g = b->segments.at[i].value;
        if (g->dropped || g->state != IN_MEMORY || (g->holders.n > 0) != held || g->used_at >= used_at)
            continue;
        if (!held && !g->has_file && (g->size > b->disk - b->use.disk || now < b->no_write_until)) continue;
        bool fresh = !held;
        for (size_t k = 0; k < g->holders.n; k++)
            fresh = fresh || !(g->holders.at[k].asked || g->holders.at[k].busy);
        if (!fresh) continue;
        best = b->segments.at[i].key;
        used_at = g->used_at;
    }
    return best;
}

/* The file of a segment that is in memory and in use, when there is one, goes
 * to make room for another's. */
static bool free_disk(spill_book *b, spill_actions *out)
{
    for (size_t i = 0; i < b->segments.n; i++) {
        segment *g = b->segments.at[i].value;
        if (g->dropped || g->state != IN_MEMORY || !g->has_file) continue;
        drop_file(b, g);
        add_action(out, SPILL_DO_DROP_FILE, 0, 0, b->segments.at[i].key);
        return true;
    }
    return false;
}

/* Bytes that are on their way out: being written, or held by some who were
 * asked and have not answered. *others: somebody beside `client` is in the way
 * of more. */
static uint64_t count_leaving(const spill_book *b, uint32_t client, bool *others)
{
    uint64_t bytes = 0;

    *others = false;
    for (size_t i = 0; i < b->segments.n; i++) {
        const segment *g = b->segments.at[i].value;
        bool asked = false, busy = false;
        for (size_t k = 0; k < g->holders.n; k++) {
            const holder *h = &g->holders.at[k];
            asked = asked || h->asked;
            busy = busy || h->busy;
            if (h->client != client && (h->asked || h->busy)) *others = true;
        }
        /* What was dropped while it is read leaves, too, and what is read for another request comes. */
        if ((g->state == WRITING && g->holders.n == 0) || (g->dropped && has_memory(g)) ||
            (g->state == IN_MEMORY && asked && !busy))
            bytes += g->size;
        if (g->state == WRITING || g->state == READING) *others = true;
    }
    return bytes;
}

/* Whether x fits as soon as everything is written that nobody holds: the disk is slow, and no one in the way. */
static bool is_room_coming(const spill_book *b, const need *x)
{
    uint64_t stays = b->use.memory;

    for (size_t i = 0; i < b->segments.n; i++) {
        const segment *g = b->segments.at[i].value;
        if ((g->state == WRITING && g->holders.n == 0) || (g->dropped && has_memory(g))) stays -= g->size;
    }
    return stays <= b->memory && x->size <= b->memory - stays;
}

/* Lets what nobody holds leave, and asks holders, until `size` bytes more would
 * fit. Whether there is something to wait for. */
static bool make_room(spill_book *b, const need *x, int64_t now, spill_actions *out)
{
    bool others;

    for (;;) {
        uint64_t id, coming = count_leaving(b, x->client, &others), stays = b->use.memory - coming;
        if (stays <= b->memory && x->size <= b->memory - stays) return true;
        id = find_oldest(b, false, now);
        if (!id && free_disk(b, out)) id = find_oldest(b, false, now);
        if (id) {
            segment *g = find_segment(b, id);
            if (g->has_file) {
                leave_memory(b, g, id, out);
                return true; /* look again: it may fit now */
            }
            g->state = WRITING;
            g->has_file = true;
            b->use.disk += g->size;
            add_action(out, SPILL_DO_WRITE, 0, 0, id);
        } else if (b->disk > 0 && (id = find_oldest(b, true, now))) {
            segment *g = find_segment(b, id);
            for (size_t i = 0; i < g->holders.n; i++) {
                holder *h = &g->holders.at[i];
                if (h->asked || h->busy) continue;
                h->asked = true;
                h->until = now + SPILL_ANSWER_NS;
                add_action(out, SPILL_DO_ASK, h->client, 0, id);
            }
        } else {
            return others && b->disk > 0;
        }
    }
}

/* Serves the requests that wait, in order, as far as there is room. */
static void serve_needs(spill_book *b, int64_t now, spill_actions *out)
{
    while (b->needs.n > 0) {
        need x = b->needs.at[0];
        segment *g = x.segment ? find_segment(b, x.segment) : NULL;
        if (b->use.memory <= b->memory && x.size <= b->memory - b->use.memory) {
            b->use.memory += x.size;
            vec_remove(&b->needs, 0);
            if (!x.segment) {
                uint64_t id = ++b->next_segment;
                g = mem_new(sizeof *g);
                g->size = x.size;
                *map_u64_put(&b->segments, id) = g;
                hold_segment(b, g, x.client);
                add_action(out, SPILL_DO_MAKE, x.client, x.request, id);
                vec_last(out).size = x.size;
            } else if (g) {
                g->state = READING;
                b->use.on_disk--;
                add_action(out, SPILL_DO_READ, 0, 0, x.segment);
            }
            continue;
        }
        uint64_t before = b->use.memory;
        bool wait = make_room(b, &x, now, out);
        if (b->use.memory < before) continue;
        if (wait && now < x.since + x.patience) return;
        if (wait && !is_room_coming(b, &x)) grow_impatient(b, &x, now);
        vec_remove(&b->needs, 0);
        if (g)
            refuse_all(g, x.segment, SPILL_FULL, out);
        else
            refuse_request(out, x.client, x.request, 0, SPILL_FULL);
    }
}

/* ---- events ---- */

static void on_want(spill_book *b, const spill_event *e, spill_actions *out)
{
    if (e->size == 0 || e->size > b->memory)
        refuse_request(out, e->client, e->request, 0, SPILL_TOO_LARGE);
    else
        add_need(b, (need){.client = e->client, .request = e->request, .size = e->size, .since = e->now});
}

static void on_open(spill_book *b, const spill_event *e, spill_actions *out)
{
    segment *g = find_segment(b, e->segment);

    if (!g) {
        refuse_request(out, e->client, e->request, e->segment, SPILL_NO_SEGMENT);
    } else if (g->state == LOST) {
        refuse_request(out, e->client, e->request, e->segment, SPILL_LOST);
    } else if (g->state == IN_MEMORY || g->state == WRITING) {
        give_segment(b, g, e->segment, e->client, e->request, out);
    } else {
        if (g->openers.n == 0 && g->state == ON_DISK)
            add_need(b, (need){.client = e->client, .segment = e->segment, .size = g->size, .since = e->now});
        vec_push(&g->openers, ((opener){.client = e->client, .request = e->request}));
    }
}

static void on_closed(spill_book *b, const spill_event *e)
{
    segment *g = find_segment(b, e->segment);
    holder *h = g ? holder_of(g, e->client) : NULL;

    if (!h) return;
    h->n -= e->n < h->n ? e->n : h->n;
    if (h->n == 0) {
        holder_leaves(b, g, h);
        return;
    }
    h->asked = false;
    h->busy = true;
    /* It says so when it lets go; but it may have been given more meanwhile,
     * without knowing that it was asked for that too. */
    h->until = e->now + SPILL_AGAIN_NS;
}

static void on_gone(spill_book *b, uint32_t client)
{
    for (size_t i = 0; i < b->needs.n;) {
        if (b->needs.at[i].client == client && !b->needs.at[i].segment)
            vec_remove(&b->needs, i);
        else
            i++;
    }
    for (size_t i = 0; i < b->segments.n; i++) {
        segment *g = b->segments.at[i].value;
        holder *h = holder_of(g, client);
        if (h) holder_leaves(b, g, h);
        for (size_t k = 0; k < g->openers.n;) {
            if (g->openers.at[k].client == client)
                vec_remove(&g->openers, k);
            else
                k++;
        }
    }
    /* A segment that the dead one alone wanted back need not come. */
    for (size_t i = 0; i < b->needs.n;) {
        segment *g = b->needs.at[i].segment ? find_segment(b, b->needs.at[i].segment) : NULL;
        if (g && g->openers.n == 0)
            vec_remove(&b->needs, i);
        else
            i++;
    }
}

static void on_wrote(spill_book *b, const spill_event *e, spill_actions *out)
{
    segment **p = map_u64_find(&b->segments, e->segment), *g = p ? *p : NULL;

    if (!g || g->state != WRITING) return;
    g->state = IN_MEMORY;
    if (e->ok)
        b->use.written += g->size;
    else
        drop_file(b, g);
    if (g->dropped) {
        end_segment(b, e->segment, g, out);
    } else if (!e->ok) {
        b->no_write_until = e->now + SPILL_ANSWER_NS; /* and what waits is told so */
    } else if (g->holders.n == 0) {
        leave_memory(b, g, e->segment, out);
        grow_patient(b);
    }
}

static void on_read(spill_book *b, const spill_event *e, spill_actions *out)
{
    segment **p = map_u64_find(&b->segments, e->segment), *g = p ? *p : NULL;

    if (!g || g->state != READING) return;
    if (e->ok) {
        g->state = IN_MEMORY;
        b->use.read += g->size;
        g->used_at = ++b->uses;
        give_all(b, g, e->segment, out);
    } else if (e->n > 0) {
        g->state = ON_DISK;
        b->use.memory -= g->size;
        b->use.on_disk++;
        refuse_all(g, e->segment, SPILL_FULL, out);
    } else {
        g->state = LOST;
        b->use.memory -= g->size;
        drop_file(b, g);
        refuse_all(g, e->segment, SPILL_LOST, out);
    }
    if (g->dropped) end_segment(b, e->segment, g, out);
}

static void on_tick(spill_book *b, int64_t now)
{
    for (size_t i = 0; i < b->segments.n; i++) {
        segment *g = b->segments.at[i].value;
        for (size_t k = 0; k < g->holders.n; k++) {
            holder *h = &g->holders.at[k];
            if (h->until > now) continue;
            if (h->asked) {
                h->asked = false;
                h->busy = true;
                h->until = now + SPILL_ANSWER_NS;
            } else if (h->busy) {
                h->busy = false;
            }
        }
    }
}

void spill_step(spill_book *b, const spill_event *e, spill_actions *out)
{
    segment *g;

    switch (e->kind) {
    case SPILL_WANT: on_want(b, e, out); break;
    case SPILL_OPEN: on_open(b, e, out); break;
    case SPILL_CLOSED: on_closed(b, e); break;
    case SPILL_DROP:
        if ((g = find_segment(b, e->segment))) end_segment(b, e->segment, g, out);
        break;
    case SPILL_GONE: on_gone(b, e->client); break;
    case SPILL_WROTE: on_wrote(b, e, out); break;
    case SPILL_READ: on_read(b, e, out); break;
    case SPILL_TICK: on_tick(b, e->now); break;
    }
    serve_needs(b, e->now, out);
}

int64_t spill_next(const spill_book *b)
{
    int64_t next = INT64_MAX;

    if (b->needs.n == 0) return next;
    next = b->needs.at[0].since + b->needs.at[0].patience;
    for (size_t i = 0; i < b->segments.n; i++) {
        const segment *g = b->segments.at[i].value;
        for (size_t k = 0; k < g->holders.n; k++) {
            const holder *h = &g->holders.at[k];
            if ((h->asked || h->busy) && h->until < next) next = h->until;
        }
    }
    return next;
}

spill_usage spill_use(const spill_book *b)
{
    spill_usage u = b->use;

    u.segments = b->segments.n;
    u.waiting = b->needs.n;
    return u;
}

bool spill_holds(const spill_book *b, uint32_t client, uint64_t id)
{
    const segment *g = find_segment(b, id);

    return g && holder_of(g, client);
}

bool spill_in_memory(const spill_book *b, uint64_t id)
{
    const segment *g = find_segment(b, id);

    return g && has_memory(g);
}

bool spill_is_lost(const spill_book *b, uint64_t id)
{
    const segment *g = find_segment(b, id);

    return g && g->state == LOST;
}
