/* events_read.c - reading event files as TensorBoard does.
 *
 * A record that is cut off or fails its sum ends the file it is in, as nothing
 * says where the next one begins. Which points a restart takes back depends on
 * the version record: without one a step that goes backwards deletes the later
 * points of its own tags; with one only a SessionLog START does, of all tags. */
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"
#include "format/codec/input.h"
#include "format/codec/proto.h"
#include "format/codec/record.h"
#include "format/tensorboard/events.h"
#include "os/file.h"

typedef struct tag {
    char *name, *plugin, *text; /* owned; text may be NULL */
    manta_events_kind kind;
    manta_events_point *points;
    int64_t n, cap;
} tag;

struct manta_events_log {
    VEC(tag) tags;
    MAP(int) index;
    int64_t records, purged, last_step;
    bool graph, new_rules;
    char *damage;
};

/* What a Value says, before it is known whose it is. */
typedef struct value {
    proto_field tag, plugin, text;
    manta_events_kind kind;
    bool has_kind, tensor;
    double number;
} value;

void manta_events_log_free(manta_events_log *l)
{
    if (!l) return;
    for (size_t i = 0; i < l->tags.n; i++) {
        tag *t = &l->tags.at[i];
        mem_free(t->name);
        mem_free(t->plugin);
        mem_free(t->text);
        mem_try_free(t->points);
    }
    vec_release(&l->tags);
    map_release(&l->index);
    mem_free(l->damage);
    mem_free(l);
}

/* ---- purging --------------------------------------------------------------------------- */

static void purge_tag(manta_events_log *l, tag *t, int64_t step)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < t->n; i++) {
        if (t->points[i].step < step) t->points[kept++] = t->points[i];
    }
    l->purged += t->n - kept;
    t->n = kept;
}

static void purge_all(manta_events_log *l, int64_t step)
{
    for (size_t i = 0; i < l->tags.n; i++) purge_tag(l, &l->tags.at[i], step);
}

/* ---- values ---------------------------------------------------------------------------- */

static double number_of(const uint8_t *at, size_t n, uint64_t dtype)
{
    float f;
    double d;
    int32_t i;
    int64_t l;

    switch (dtype) {
    case 1: return n >= 4 ? (memcpy(&f, at, 4), f) : 0;
    case 2: return n >= 8 ? (memcpy(&d, at, 8), d) : 0;
    case 3: return n >= 4 ? (memcpy(&i, at, 4), i) : 0;
    case 9: return n >= 8 ? (memcpy(&l, at, 8), (double)l) : 0;
    default: return 0;
    }
}

/* The first element of a tensor: a number, or a text. False: damaged. */
static bool read_tensor(proto_reader r, value *v)
{
    uint64_t dtype = 0, whole;
    proto_field f, content = {0};
    proto_step s;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 1) dtype = f.value;
        if (f.number == 4) content = f;
        if (f.number == 5) v->number = f.wire == PROTO_FIXED32 ? proto_float(&f) : number_of(f.at, f.n, 1);
        if (f.number == 6) v->number = f.wire == PROTO_FIXED64 ? proto_double(&f) : number_of(f.at, f.n, 2);
        if ((f.number == 7 || f.number == 10) && f.wire == PROTO_VARINT) v->number = (double)(int64_t)f.value;
        if ((f.number == 7 || f.number == 10) && f.wire == PROTO_BYTES) {
            proto_reader packed = proto_inside(&f);
            if (f.n && proto_take_varint(&packed, &whole)) v->number = (double)(int64_t)whole;
        }
        if (f.number == 8 && f.wire == PROTO_BYTES && !v->text.at) v->text = f;
    }
    if (content.wire == PROTO_BYTES && content.n) v->number = number_of(content.at, content.n, dtype);
    v->tensor = true;
    return s == PROTO_END;
}

/* Metadata: 1: PluginData { 1: name }. */
static bool read_plugin(proto_reader r, value *v)
{
    proto_field f, g;
    proto_step s, t = PROTO_END;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number != 1) continue;
        proto_reader data = proto_inside(&f);
        while ((t = proto_next(&data, &g)) == PROTO_FIELD) {
            if (g.number == 1 && g.wire == PROTO_BYTES) v->plugin = g;
        }
        if (t == PROTO_BAD) return false;
    }
    return s == PROTO_END;
}

static void set_kind(value *v, manta_events_kind kind)
{
    v->kind = kind;
    v->has_kind = true;
}

static bool read_value(proto_reader r, value *v)
{
    proto_field f;
    proto_step s;

    *v = (value){.kind = MANTA_EVENTS_OTHER};
    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        switch (f.number) {
        case 1: v->tag = f; break;
        case 2:
            set_kind(v, MANTA_EVENTS_SCALAR);
            v->number = proto_float(&f);
            break;
        case 4: set_kind(v, MANTA_EVENTS_IMAGE); break;
        case 5: set_kind(v, MANTA_EVENTS_HISTOGRAM); break;
        case 8:
            if (!read_tensor(proto_inside(&f), v)) return false;
            break;
        case 9:
            if (!read_plugin(proto_inside(&f), v)) return false;
            break;
        default: break;
        }
    }
    return s == PROTO_END;
}

static manta_events_kind kind_of_plugin(const char *plugin)
{
    static const struct {
        const char *plugin;
        manta_events_kind kind;
    } table[] = {{"scalars", MANTA_EVENTS_SCALAR},
                 {"histograms", MANTA_EVENTS_HISTOGRAM},
                 {"text", MANTA_EVENTS_TEXT},
                 {"images", MANTA_EVENTS_IMAGE},
                 {"hparams", MANTA_EVENTS_HPARAMS}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(table[i].plugin, plugin)) return table[i].kind;
    }
    return MANTA_EVENTS_OTHER;
}

/* The plugin stands beside the first value of a tag and counts for all. */
static tag *tag_of(manta_events_log *l, const value *v)
{
    char *name = proto_take_text(&v->tag);
    int *at = map_find(&l->index, name);
    tag *t;

    if (!at) {
        *map_put(&l->index, name) = (int)l->tags.n;
        vec_push(&l->tags, (tag){.name = name, .plugin = proto_take_text(&v->plugin)});
        t = &vec_last(&l->tags);
        t->kind = v->has_kind ? v->kind : kind_of_plugin(t->plugin);
        return t;
    }
    mem_free(name);
    return &l->tags.at[*at];
}

static manta_status add_point(tag *t, manta_events_point p)
{
    if (t->n == t->cap) {
        int64_t cap = t->cap ? 2 * t->cap : 8;
        void *more = NULL;
        TRY(mem_try_array(cap, sizeof *t->points, "the points of an event file", &more));
        if (t->n) memcpy(more, t->points, (size_t)t->n * sizeof *t->points);
        mem_try_free(t->points);
        t->points = more;
        t->cap = cap;
    }
    t->points[t->n++] = p;
    return MANTA_OK;
}

/* ---- events ---------------------------------------------------------------------------- */

typedef struct event {
    double wall_s;
    int64_t step;
    proto_field version, graph, summary, session;
} event;

static bool read_event(const uint8_t *data, size_t n, event *e)
{
    proto_reader r = proto_read(data, n);
    proto_field f;
    proto_step s;

    *e = (event){0};
    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 1 && f.wire == PROTO_FIXED64) e->wall_s = proto_double(&f);
        if (f.number == 2 && f.wire == PROTO_VARINT) e->step = (int64_t)f.value;
        if (f.wire != PROTO_BYTES) continue;
        if (f.number == 3) e->version = f;
        if (f.number == 4) e->graph = f;
        if (f.number == 5) e->summary = f;
        if (f.number == 7) e->session = f;
    }
    return s == PROTO_END;
}

/* "brain.Event:2" and later. */
static bool has_new_rules(const proto_field *version)
{
    static const char head[] = "brain.Event:";
    size_t k = sizeof head - 1;

    return version->n > k && !memcmp(version->at, head, k) && version->at[k] >= '2' && version->at[k] <= '9';
}

static bool is_start(const proto_field *session)
{
    proto_reader r = proto_inside(session);
    proto_field f;

    while (proto_next(&r, &f) == PROTO_FIELD) {
        if (f.number == 1 && f.wire == PROTO_VARINT) return f.value == 1;
    }
    return false;
}

static manta_status take_values(manta_events_log *l, const event *e, bool *ok)
{
    bool backwards = !l->new_rules && l->last_step > e->step;
    proto_reader r = proto_inside(&e->summary);
    proto_field f;
    proto_step s;
    value v;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number != 1) continue;
        if (!read_value(proto_inside(&f), &v)) break;
        tag *t = tag_of(l, &v);
        if (backwards) purge_tag(l, t, e->step);
        TRY(add_point(t, (manta_events_point){.step = e->step, .wall_s = e->wall_s, .value = v.number}));
        if (t->kind != MANTA_EVENTS_TEXT || !v.text.at) continue;
        mem_free(t->text);
        t->text = proto_take_text(&v.text);
    }
    *ok = s == PROTO_END;
    l->last_step = e->step;
    return MANTA_OK;
}

static manta_status take_event(manta_events_log *l, const uint8_t *data, size_t n, bool *ok)
{
    event e;

    if (!(*ok = read_event(data, n, &e))) return MANTA_OK;
    l->records++;
    if (e.version.at && has_new_rules(&e.version)) l->new_rules = true;
    if (e.graph.at) l->graph = true;
    if (e.session.at && l->new_rules && is_start(&e.session)) purge_all(l, e.step);
    return e.summary.at ? take_values(l, &e, ok) : MANTA_OK;
}

static manta_status read_records(manta_events_log *l, const char *name, const uint8_t *bytes, size_t size)
{
    record_reader r = {.data = bytes, .size = size};
    const uint8_t *data;
    const char *why = NULL;
    size_t n, at = 0;
    record_step s;
    bool ok;

    while (!why && (s = record_next(&r, &data, &n)) != RECORD_END) {
        switch (s) {
        case RECORD_GIVEN:
            TRY(take_event(l, data, n, &ok));
            if (!ok) why = "the record is no event";
            break;
        case RECORD_CUT: why = "the file ends within a record"; break;
        case RECORD_BAD_LENGTH: why = "the length of a record does not have its checksum"; break;
        default: why = "a record does not have its checksum"; break;
        }
        if (!why) at = r.at;
    }
    if (!why) return MANTA_OK;
    if (at == 0 && size)
        return manta_fail(MANTA_ECORRUPT, "%s: %s at offset 0, expected an event file", name, why);
    if (!l->damage) l->damage = mem_printf("%s: %s at offset %zu", name, why, at);
    return MANTA_OK;
}

manta_status events_read_bytes(const char *name, const uint8_t *data, size_t size, manta_events_log **out)
{
    manta_events_log *l = mem_new(sizeof *l);
    manta_status st = read_records(l, name, data, size);

    if (st) {
        manta_events_log_free(l);
        return st;
    }
    *out = l;
    return MANTA_OK;
}

/* ---- files ----------------------------------------------------------------------------- */

static manta_status read_file(manta_events_log *l, const char *path)
{
    input in = {0};

    TRY(input_read(path, &in));
    manta_status st = read_records(l, path, in.data, in.size);
    input_release(&in);
    return st;
}

static manta_status read_folder(manta_events_log *l, const char *folder)
{
    file_names names = {0};
    manta_status st = file_list(folder, &names);
    int n = 0;

    for (size_t i = 0; i < names.n && !st; i++) {
        if (!events_is_name(names.at[i])) continue;
        char *path = mem_printf("%s/%s", folder, names.at[i]);
        st = read_file(l, path);
        mem_free(path);
        n++;
    }
    file_names_release(&names);
    if (!st && !n)
        st = manta_fail(MANTA_ENOENT, "%s: no event file (a name with tfevents in it) lies there", folder);
    return st;
}

manta_status manta_events_read(const char *path, manta_events_log **out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    file_info info;

    TRY(file_stat(path, &info));
    manta_events_log *l = mem_new(sizeof *l);
    manta_status st = info.is_folder ? read_folder(l, path) : read_file(l, path);
    if (st) {
        manta_events_log_free(l);
        return st;
    }
    *out = l;
    return MANTA_OK;
}

int manta_events_tags(const manta_events_log *l)
{
    REFUSE_NULL_OR(l, 0);
    return (int)l->tags.n;
}

manta_events_tag manta_events_tag_at(const manta_events_log *l, int i)
{
    REFUSE_NULL_OR(l, (manta_events_tag){0});

    const tag *t = &l->tags.at[i];

    return (manta_events_tag){.name = t->name,
                              .kind = t->kind,
                              .plugin = t->plugin,
                              .count = t->n,
                              .points = t->points,
                              .text = t->text};
}

int64_t manta_events_records(const manta_events_log *l)
{
    REFUSE_NULL_OR(l, 0);
    return l->records;
}

int64_t manta_events_purged(const manta_events_log *l)
{
    REFUSE_NULL_OR(l, 0);
    return l->purged;
}

bool manta_events_has_graph(const manta_events_log *l)
{
    REFUSE_NULL_OR(l, false);
    return l->graph;
}

const char *manta_events_damage(const manta_events_log *l)
{
    REFUSE_NULL_OR(l, NULL);
    return l->damage;
}
