/* parquet_meta.c - what a Parquet file says of itself in its footer. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/vec.h"
#include "format/parquet/parquet_meta.h"
#include "format/parquet/thrift.h"

#define MAX_FOOTER (256u << 20)
#define MAX_LEAVES (1 << 16)

/* A node of the schema as it is written. */
typedef struct element {
    char *name; /* owned */
    int64_t type; /* -1: a group */
    int64_t width, repetition, children, converted;
    int logical; /* field of the LogicalType union, 0: none */
    int64_t bits;
    bool is_signed;
    int unit; /* of a timestamp: field of the TimeUnit union, 0: none */
} element;

typedef VEC(element) elements;

/* Repetition */
enum { REQUIRED = 0, OPTIONAL = 1, REPEATED = 2 };

typedef struct footer {
    const seek_file *f;
    uint64_t at; /* offset of the FileMetaData */
    thrift t;
} footer;

static manta_status fail_corrupt(const footer *k)
{
    return manta_fail(MANTA_ECORRUPT, "%s: the metadata is damaged at offset %llu: %s", k->f->path,
                      (unsigned long long)(k->at + k->t.at), k->t.wrong);
}

/* Names go into sentences, so that control bytes have no place in them. */
static char *take_name(const uint8_t *at, size_t n)
{
    char *name = mem_strndup(at ? (const char *)at : "", n);

    for (char *p = name; *p; p++) {
        if ((unsigned char)*p < ' ') *p = '?';
    }
    return name;
}

/* ---- schema --------------------------------------------------------------------------- */

/* IntType: 1 bitWidth, 2 isSigned. */
static void read_int_type(thrift *t, element *e)
{
    thrift_field f = {0};

    while (thrift_next(t, &f)) {
        if (f.id == 1) {
            e->bits = thrift_int(t, &f);
        } else if (f.id == 2) {
            e->is_signed = thrift_bool(t, &f);
        } else {
            thrift_skip(t, f.type);
        }
    }
}

/* TimestampType: 1 isAdjustedToUTC, 2 unit, a union of MILLIS, MICROS, NANOS. */
static void read_timestamp(thrift *t, element *e)
{
    thrift_field f = {0}, unit = {0};

    while (thrift_next(t, &f)) {
        if (f.id == 2 && thrift_struct(t, &f)) {
            while (thrift_next(t, &unit)) {
                e->unit = unit.id;
                thrift_skip(t, unit.type);
            }
        } else {
            thrift_skip(t, f.type);
        }
    }
}

/* LogicalType, a union: 10 is INTEGER, 15 FLOAT16; the others are no numbers. */
static void read_logical(thrift *t, element *e)
{
    thrift_field f = {0};

    while (thrift_next(t, &f)) {
        e->logical = f.id;
        if (f.id == 10 && thrift_struct(t, &f)) {
            read_int_type(t, e);
        } else if (f.id == 8 && thrift_struct(t, &f)) {
            read_timestamp(t, e);
        } else {
            thrift_skip(t, f.type);
        }
    }
}

/* SchemaElement: 1 type, 2 type_length, 3 repetition, 4 name, 5 num_children,
 * 6 converted_type, 10 logicalType. */
static void read_element(thrift *t, element *e)
{
    thrift_field f = {0};
    const uint8_t *name = NULL;
    size_t n = 0;

    *e = (element){.type = -1, .converted = -1};
    while (thrift_next(t, &f)) {
        switch (f.id) {
        case 1: e->type = thrift_int(t, &f); break;
        case 2: e->width = thrift_int(t, &f); break;
        case 3: e->repetition = thrift_int(t, &f); break;
        case 4: name = thrift_binary(t, &f, &n); break;
        case 5: e->children = thrift_int(t, &f); break;
        case 6: e->converted = thrift_int(t, &f); break;
        case 10:
            if (thrift_struct(t, &f)) read_logical(t, e);
            break;
        default: thrift_skip(t, f.type);
        }
    }
    e->name = take_name(name, n);
    if (e->children > 0) e->type = -1;
    if (e->type < -1 || e->type > PARQUET_FIXED || e->repetition < REQUIRED || e->repetition > REPEATED ||
        e->children < 0 || (e->type == PARQUET_FIXED && (e->width < 1 || e->width > 1 << 28))) {
        thrift_wrong(t, "a column has no known type, width or repetition");
    }
}

static const char *const converted_names[] = {"text",           "a map",     "a map",  "a list",
                                              "an enumeration", "a decimal", "a date", "a time",
                                              "a time",         "a time",    "a time"};
static const char *const logical_names[] = {
    "?",      "text",   "a map", "a list", "an enumeration",    "a decimal", "a date",
    "a time", "a time", "?",     "?",      "a column of nulls", "JSON",      "BSON",
    "a UUID", "?"};

/* Which numbers the leaf holds. Where both are given, LogicalType (newer) says
 * the same as ConvertedType. */
static void find_meaning(const element *e, parquet_leaf *leaf)
{
    bool integer = e->type == PARQUET_INT32 || e->type == PARQUET_INT64;
    int64_t c = e->converted;

    leaf->type = (int)e->type;
    leaf->width = (int)e->width;
    leaf->meaning = PARQUET_PLAIN_VALUE;
    if (e->type == PARQUET_INT96) {
        leaf->meaning = PARQUET_OTHER;
        leaf->other = "a time";
    } else if (e->logical == 10 && integer) {
        leaf->meaning = e->is_signed ? PARQUET_SIGNED : PARQUET_UNSIGNED;
        leaf->bits = (int)e->bits;
    } else if (e->logical == 15 && e->type == PARQUET_FIXED && e->width == 2) {
        leaf->meaning = PARQUET_HALF;
    } else if (e->logical > 0) {
        leaf->meaning = PARQUET_OTHER;
        leaf->other = e->logical < 15 ? logical_names[e->logical] : "of an unknown kind";
    } else if (c >= 11 && c <= 18 && integer) { /* UINT_8, 16, 32, 64, INT_8, ... */
        leaf->meaning = c <= 14 ? PARQUET_UNSIGNED : PARQUET_SIGNED;
        leaf->bits = 8 << ((c - 11) % 4);
    } else if (c >= 0) {
        leaf->meaning = PARQUET_OTHER;
        leaf->other = c <= 10   ? converted_names[c]
                      : c == 19 ? "JSON"
                      : c == 20 ? "BSON"
                                : "of an unknown kind";
    } else if (integer) {
        leaf->meaning = PARQUET_SIGNED;
        leaf->bits = e->type == PARQUET_INT32 ? 32 : 64;
    }
    if (leaf->meaning == PARQUET_SIGNED || leaf->meaning == PARQUET_UNSIGNED) {
        int most = e->type == PARQUET_INT32 ? 32 : 64;
        if (leaf->bits != 8 && leaf->bits != 16 && leaf->bits != 32 && leaf->bits != 64) leaf->bits = most;
        if (leaf->bits > most) leaf->bits = most;
    }
}

/* What a leaf that is no number counts, if it is a day or a time, or whether it is text. */
static void find_time(const element *e, parquet_leaf *leaf)
{
    static const parquet_time units[] = {PARQUET_NO_TIME, PARQUET_MILLISECONDS, PARQUET_MICROSECONDS,
                                         PARQUET_NANOSECONDS};

    if (leaf->meaning != PARQUET_OTHER) return;
    if (e->type == PARQUET_INT32 && (e->logical == 6 || (!e->logical && e->converted == 6)))
        leaf->time = PARQUET_DAYS;
    if (e->type == PARQUET_INT64 && e->logical == 8 && e->unit >= 1 && e->unit <= 3)
        leaf->time = units[e->unit];
    if (e->type == PARQUET_INT64 && !e->logical && e->converted == 9) leaf->time = PARQUET_MILLISECONDS;
    if (e->type == PARQUET_INT64 && !e->logical && e->converted == 10) leaf->time = PARQUET_MICROSECONDS;
    leaf->text = e->type == PARQUET_BYTE_ARRAY && (e->logical == 1 || e->logical == 4 ||
                                                   (!e->logical && (e->converted == 0 || e->converted == 4)));
}

/* Where the walk over the schema is: what its ancestors amount to. */
typedef struct branch {
    int64_t left; /* children still to come */
    int def, rep, list_def;
    size_t path; /* length of the name of what lies above */
    enum { NO_LIST, LIST, LIST_ITEMS } list; /* inside a list its two inner steps have no name */
} branch;

typedef struct walk {
    footer *k;
    VEC(branch) open;
    VEC(parquet_leaf) leaves;
    buf path;
} walk;

static void add_leaf(walk *w, const element *e, const branch *b)
{
    parquet_leaf leaf = {.name = mem_strdup(buf_text(&w->path)),
                         .max_def = b->def,
                         .max_rep = b->rep,
                         .list_def = b->list_def};

    find_meaning(e, &leaf);
    find_time(e, &leaf);
    vec_push(&w->leaves, leaf);
}

/* Takes one element into the tree; false when there is no room for it. */
static bool visit_element(walk *w, const element *e)
{
    while (w->open.n && vec_last(&w->open).left == 0) vec_pop(&w->open);
    if (!w->open.n) {
        thrift_wrong(&w->k->t, "a column lies outside the schema's root");
        return false;
    }
    branch *up = &vec_last(&w->open);
    branch b = *up;
    up->left--;
    if (e->repetition != REQUIRED) b.def++;
    if (e->repetition == REPEATED) {
        b.rep++;
        b.list_def = b.def;
    }
    buf_cut(&w->path, b.path);
    /* Of `optional group img (LIST) { repeated group list { element } }` the
     * name is img. A repeated leaf in it (the old form) is called img too. */
    bool items = up->list == LIST && e->repetition == REPEATED;
    bool inner = items || up->list == LIST_ITEMS;
    if (!inner) {
        if (b.path) buf_add_char(&w->path, '.');
        buf_add_text(&w->path, e->name);
    }
    b.path = w->path.n;
    b.list = e->converted == 3 || e->logical == 3 ? LIST : items && e->children == 1 ? LIST_ITEMS : NO_LIST;
    if (e->type >= 0) {
        add_leaf(w, e, &b);
        return true;
    }
    b.left = e->children;
    if (w->open.n >= 64) {
        thrift_wrong(&w->k->t, "the schema is nested too deep");
        return false;
    }
    vec_push(&w->open, b);
    return true;
}

static manta_status walk_schema(footer *k, const elements *list, parquet_meta *m)
{
    walk w = {.k = k};

    buf_reserve(&w.path, 64);
    if (list->n == 0 || list->at[0].type >= 0) {
        thrift_wrong(&k->t, "the schema has no root");
    } else {
        vec_push(&w.open, (branch){.left = list->at[0].children});
        for (size_t i = 1; i < list->n && visit_element(&w, &list->at[i]); i++) {}
        for (size_t i = 0; i < w.open.n; i++) {
            if (w.open.at[i].left) thrift_wrong(&k->t, "the schema has fewer columns than it says");
        }
        if (!w.leaves.n || w.leaves.n > MAX_LEAVES)
            thrift_wrong(&k->t, "the schema has no columns, or too many");
    }
    vec_release(&w.open);
    buf_release(&w.path);
    m->leaves = w.leaves.at;
    m->n_leaves = (int)w.leaves.n;
    return k->t.wrong ? fail_corrupt(k) : MANTA_OK;
}

static void read_schema(footer *k, const thrift_field *f, elements *out)
{
    size_t n = thrift_list(&k->t, f, THRIFT_STRUCT);

    for (size_t i = 0; i < n && !k->t.wrong; i++) {
        element e;
        read_element(&k->t, &e);
        vec_push(out, e);
    }
}

/* ---- row groups ---------------------------------------------------------------------- */

/* ColumnMetaData: 1 type, 2 encodings, 3 path, 4 codec, 5 num_values, 7 total
 * compressed size, 9 data_page_offset, 11 dictionary_page_offset. */
static void read_column(footer *k, const parquet_leaf *leaf, parquet_chunk *c)
{
    thrift *t = &k->t;
    thrift_field f = {0};
    int64_t data = -1, dictionary = -1, size = -1, type = -1;

    c->values = -1;
    while (thrift_next(t, &f)) {
        switch (f.id) {
        case 1: type = thrift_int(t, &f); break;
        case 4: c->codec = (int)thrift_int(t, &f); break;
        case 5: c->values = thrift_int(t, &f); break;
        case 7: size = thrift_int(t, &f); break;
        case 9: data = thrift_int(t, &f); break;
        case 11: dictionary = thrift_int(t, &f); break;
        default: thrift_skip(t, f.type);
        }
    }
    /* Writers that have no dictionary may say 0, where the file's magic lies. */
    int64_t at = dictionary > 0 && dictionary < data ? dictionary : data;
    if (c->values == 0) { /* nothing was written, so that its place means nothing */
        at = 4;
        size = 0;
    }
    if (at < 4 || size < 0 || (uint64_t)at > k->at || (uint64_t)size > k->at - (uint64_t)at) {
        thrift_wrong(t, "a column lies outside the file");
    }
    if (c->values < 0) thrift_wrong(t, "a column has no number of values");
    if (type != leaf->type) thrift_wrong(t, "a column has another type than in the schema");
    if (t->wrong) return;
    c->at = (uint64_t)at;
    c->size = (uint64_t)size;
}

/* ColumnChunk: 1 file_path, 3 meta_data, 8 and 9 encryption. */
static void read_chunk(footer *k, const parquet_leaf *leaf, parquet_chunk *c)
{
    thrift_field f = {0};
    bool meta = false;

    while (thrift_next(&k->t, &f)) {
        if (f.id == 3 && thrift_struct(&k->t, &f)) {
            read_column(k, leaf, c);
            meta = true;
            continue;
        }
        if (f.id == 1) c->refused = "lies in another file";
        if (f.id == 8 || f.id == 9) c->refused = "is encrypted";
        thrift_skip(&k->t, f.type);
    }
    if (!meta && !c->refused) thrift_wrong(&k->t, "a column has no metadata");
}

/* RowGroup: 1 columns, 3 num_rows. */
static void read_group(footer *k, const parquet_meta *m, parquet_group *g)
{
    thrift *t = &k->t;
    thrift_field f = {0};

    g->rows = -1;
    while (thrift_next(t, &f)) {
        if (f.id == 3) {
            g->rows = thrift_int(t, &f);
        } else if (f.id != 1 || g->chunks) {
            thrift_skip(t, f.type);
        } else if (thrift_list(t, &f, THRIFT_STRUCT) == (size_t)m->n_leaves) {
            g->chunks = mem_new((size_t)m->n_leaves * sizeof *g->chunks);
            for (int i = 0; i < m->n_leaves && !t->wrong; i++) read_chunk(k, &m->leaves[i], &g->chunks[i]);
        } else {
            thrift_wrong(t, "a row group has another number of columns than the schema");
        }
    }
    if (g->rows < 0 || !g->chunks) thrift_wrong(t, "a row group has no rows or no columns");
}

/* The schema may stand behind the row groups, so these are read in a pass of
 * their own. */
static manta_status read_groups(footer *k, size_t at, parquet_meta *m)
{
    const thrift_field f = {.type = THRIFT_LIST};
    VEC(parquet_group) groups = {0};
    int64_t rows = 0;

    k->t.at = at;
    size_t n = thrift_list(&k->t, &f, THRIFT_STRUCT);
    for (size_t i = 0; i < n && !k->t.wrong; i++) {
        parquet_group g = {.first = rows};
        read_group(k, m, &g);
        if (!k->t.wrong && __builtin_add_overflow(rows, g.rows, &rows)) {
            thrift_wrong(&k->t, "the number of rows overflows");
        }
        vec_push(&groups, g);
    }
    m->groups = groups.at;
    m->n_groups = (int)groups.n;
    if (!k->t.wrong && rows != m->rows)
        thrift_wrong(&k->t, "the rows of the groups are not the file's in sum");
    return k->t.wrong ? fail_corrupt(k) : MANTA_OK;
}

/* FileMetaData: 1 version, 2 schema, 3 num_rows, 4 row_groups. */
static manta_status read_file(footer *k, elements *schema, parquet_meta *m)
{
    thrift_field f = {0};
    size_t groups = 0;

    m->rows = -1;
    while (thrift_next(&k->t, &f)) {
        if (f.id == 2 && !schema->n) {
            read_schema(k, &f, schema);
        } else if (f.id == 3) {
            m->rows = thrift_int(&k->t, &f);
        } else {
            if (f.id == 4 && f.type == THRIFT_LIST) groups = k->t.at;
            thrift_skip(&k->t, f.type);
        }
    }
    if (!groups || m->rows < 0) thrift_wrong(&k->t, "it has no row groups or no number of rows");
    if (k->t.wrong) return fail_corrupt(k);
    TRY(walk_schema(k, schema, m));
    return read_groups(k, groups, m);
}

static manta_status find_footer(const seek_file *f, uint64_t *at, uint32_t *n)
{
    uint8_t head[4], tail[8];

    if (f->size < 12) {
        return manta_fail(MANTA_ECORRUPT, "%s: %llu bytes are too few for a Parquet file", f->path,
                          (unsigned long long)f->size);
    }
    TRY(seek_read(f, 0, head, 4, "the magic"));
    TRY(seek_read(f, f->size - 8, tail, 8, "the footer"));
    if (memcmp(tail + 4, "PARE", 4) == 0) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: the Parquet file is encrypted, which is not read",
                          f->path);
    }
    if (memcmp(head, "PAR1", 4) != 0 || memcmp(tail + 4, "PAR1", 4) != 0) {
        return manta_fail(MANTA_ECORRUPT, "%s: expected PAR1 at offset 0 and at the end: %s", f->path,
                          memcmp(head, "PAR1", 4) ? "no Parquet file" : "the file is cut off");
    }
    *n = (uint32_t)tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24;
    if (*n > f->size - 12 || *n > MAX_FOOTER) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the metadata has %u bytes at offset %llu, expected at most %llu", f->path, *n,
                          (unsigned long long)(f->size - 8), (unsigned long long)(f->size - 12));
    }
    *at = f->size - 8 - *n;
    return MANTA_OK;
}

manta_status parquet_meta_read(const seek_file *f, parquet_meta *out)
{
    footer k = {.f = f};
    parquet_meta m = {0};
    elements schema = {0};
    uint32_t n = 0;
    void *bytes = NULL;
    manta_status st;

    TRY(find_footer(f, &k.at, &n));
    TRY(mem_try_array((int64_t)n + 1, 1, "the metadata of a Parquet file", &bytes));
    if ((st = seek_read(f, k.at, bytes, n, "the metadata"))) goto out;
    k.t = thrift_read(bytes, n);
    if ((st = read_file(&k, &schema, &m))) goto out;
    *out = m;
    m = (parquet_meta){0};
out:
    for (size_t i = 0; i < schema.n; i++) mem_free(schema.at[i].name);
    vec_release(&schema);
    parquet_meta_release(&m);
    mem_try_free(bytes);
    return st;
}

void parquet_meta_release(parquet_meta *m)
{
    for (int i = 0; i < m->n_leaves; i++) mem_free(m->leaves[i].name);
    for (int i = 0; i < m->n_groups; i++) mem_free(m->groups[i].chunks);
    mem_free(m->leaves);
    mem_free(m->groups);
    *m = (parquet_meta){0};
}

const char *parquet_type_name(int type)
{
    static const char *const names[] = {"BOOLEAN", "INT32",  "INT64",      "INT96",
                                        "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};

    return type >= 0 && type <= PARQUET_FIXED ? names[type] : "?";
}
