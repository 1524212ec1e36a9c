/* describe.c - what Parquet files and tar archives hold, in their own words. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <manta/data_file.h>

#include "base/args.h"
#include "base/map.h"
#include "base/mem.h"
#include "format/parquet/parquet_meta.h"
#include "format/webdataset/tar.h"
#include "format/webdataset/webdataset.h"

void manta_data_facts_release(manta_data_facts *f)
{
    if (!f) return;
    for (int i = 0; i < f->n; i++) {
        mem_free(f->fields[i].name);
        mem_free(f->fields[i].type);
    }
    mem_free(f->fields);
    *f = (manta_data_facts){0};
}

/* ---- Parquet ---------------------------------------------------------------------------- */

static char *type_of_leaf(const parquet_leaf *leaf)
{
    const char *list = leaf->max_rep > 1 ? "lists of lists of " : leaf->max_rep ? "list of " : "";
    const char *type = parquet_type_name(leaf->type);

    switch (leaf->meaning) {
    case PARQUET_OTHER: return mem_printf("%s%s (%s)", list, leaf->other, type);
    case PARQUET_SIGNED: return mem_printf("%sint%d", list, leaf->bits);
    case PARQUET_UNSIGNED: return mem_printf("%suint%d", list, leaf->bits);
    case PARQUET_HALF: return mem_printf("%sfloat16", list);
    case PARQUET_PLAIN_VALUE: break;
    }
    return leaf->type == PARQUET_FIXED ? mem_printf("%s%d bytes (%s)", list, leaf->width, type)
                                       : mem_printf("%s%s", list, type);
}

static manta_status describe_parquet(const seek_file *f, manta_data_facts *out)
{
    parquet_meta m = {0};

    TRY(parquet_meta_read(f, &m));
    *out = (manta_data_facts){.format = "parquet", .samples = m.rows, .n = m.n_leaves};
    out->fields = mem_new(((size_t)m.n_leaves + 1) * sizeof *out->fields);
    for (int i = 0; i < m.n_leaves; i++) {
        manta_data_field *field = &out->fields[i];
        *field = (manta_data_field){
            .name = mem_strdup(m.leaves[i].name), .type = type_of_leaf(&m.leaves[i]), .samples = m.rows};
        for (int g = 0; g < m.n_groups; g++) field->bytes += (int64_t)m.groups[g].chunks[i].size;
    }
    parquet_meta_release(&m);
    return MANTA_OK;
}

/* ---- tar archives ----------------------------------------------------------------------- */

typedef struct ending {
    int64_t samples, bytes;
} ending;

typedef struct counting {
    MAP(ending) endings;
    char *key; /* of the sample that goes on; owned */
    int64_t samples;
} counting;

static void count_member(counting *c, const tar_member *m)
{
    const char *dot = webdataset_key_end(m->name);

    if (!dot) return;
    size_t n = (size_t)(dot - m->name);
    if (!c->key || strlen(c->key) != n || memcmp(c->key, m->name, n) != 0) {
        mem_free(c->key);
        c->key = mem_strndup(m->name, n);
        c->samples++;
    }
    char *name = mem_strdup(dot + 1);
    for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
    ending *e = map_put(&c->endings, name);
    e->samples++;
    e->bytes += (int64_t)m->size;
    mem_free(name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const manta_data_field *)a)->name, ((const manta_data_field *)b)->name);
}

static void fields_of(const counting *c, manta_data_facts *out)
{
    *out = (manta_data_facts){.format = "tar", .samples = c->samples};
    out->fields = mem_new((c->endings.n + 1) * sizeof *out->fields);
    for (size_t i = 0; i < c->endings.n; i++) {
        const ending *e = &c->endings.at[i].value;
        out->fields[out->n++] = (manta_data_field){.name = mem_strdup(c->endings.at[i].key),
                                                   .type = mem_strdup(""),
                                                   .samples = e->samples,
                                                   .bytes = e->bytes};
    }
    if (out->n) qsort(out->fields, (size_t)out->n, sizeof *out->fields, by_name);
}

static manta_status describe_tar(const seek_file *f, manta_data_facts *out)
{
    tar *t = mem_new(sizeof *t);
    counting c = {0};
    tar_member m;
    bool end = false;
    manta_status st;

    tar_init(t, f);
    while (!(st = tar_next(t, &m, &end)) && !end) count_member(&c, &m);
    tar_release(t);
    mem_free(t);
    if (!st) fields_of(&c, out);
    mem_free(c.key);
    map_release(&c.endings);
    return st;
}

static manta_status describe_packed(seek_file *f, manta_data_facts *out)
{
    seek_file unpacked = {0};
    bool packed;

    TRY(tar_is_packed(f, &packed));
    if (!packed) return describe_tar(f, out);
    TRY(tar_unpack(f, &unpacked));
    manta_status st = describe_tar(&unpacked, out);
    seek_close(&unpacked);
    return st;
}

/* ---- */

static bool ends_in(const char *path, const char *tail)
{
    size_t n = strlen(path), k = strlen(tail);

    return n > k && !strcmp(path + n - k, tail);
}

manta_status manta_data_describe(const char *path, manta_data_facts *out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    seek_file f = {0};
    bool parquet = ends_in(path, ".parquet");

    if (!parquet && !ends_in(path, ".tar") && !ends_in(path, ".tar.gz") && !ends_in(path, ".tgz")) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: neither a Parquet file nor a tar archive, by its name",
                          path);
    }
    TRY(seek_open(path, &f));
    manta_status st = parquet ? describe_parquet(&f, out) : describe_packed(&f, out);
    seek_close(&f);
    return st;
}
