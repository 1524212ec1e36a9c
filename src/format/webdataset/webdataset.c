/* webdataset.c - datasets out of tar archives of samples. */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "base/vec.h"
#include "data/source.h"
#include "format/webdataset/tar.h"
#include "format/webdataset/webdataset.h"
#include "format/codec/shard.h"
#include "format/codec/sizes.h"
#include "format/webdataset/webdataset_field.h"
#include "os/file.h"

#define MAX_SHARDS 100000

typedef struct shard {
    seek_file f; /* path only, when not kept open */
    bool open;
} shard;

typedef struct place {
    uint64_t at, size;
} place;

typedef struct sample {
    char *key; /* owned */
    uint32_t shard;
    place of[2]; /* x and y */
} sample;

/* A member of the sample that is being collected. */
typedef struct part {
    char *extension; /* owned */
    place at;
} part;

typedef struct set {
    VEC(shard) shards;
    VEC(sample) samples;
    int n; /* fields: x, and y perhaps; 0: not chosen yet */
    webdataset_field fields[2];
    const manta_open_options *options; /* while it is opened */
} set;

static void set_free(void *ctx)
{
    set *s = ctx;

    for (size_t i = 0; i < s->shards.n; i++) {
        if (s->shards.at[i].open) {
            seek_close(&s->shards.at[i].f);
        } else {
            mem_free(s->shards.at[i].f.path);
        }
    }
    for (size_t i = 0; i < s->samples.n; i++) mem_free(s->samples.at[i].key);
    vec_release(&s->shards);
    vec_release(&s->samples);
    for (int i = 0; i < 2; i++) webdataset_field_release(&s->fields[i]);
    mem_free(s);
}

/* ---- samples out of members -------------------------------------------------------------------- */

typedef struct collect {
    set *s;
    uint32_t shard;
    const char *path;
    char *key; /* owned; NULL: no sample yet */
    VEC(part) parts;
} collect;

static void clear_sample(collect *c)
{
    for (size_t i = 0; i < c->parts.n; i++) mem_free(c->parts.at[i].extension);
    vec_clear(&c->parts);
    mem_free(c->key);
    c->key = NULL;
}

static void list_parts(const collect *c, buf *out)
{
    for (size_t i = 0; i < c->parts.n && out->n < 120; i++) {
        buf_printf(out, "%s%s", i ? ", " : "", c->parts.at[i].extension);
    }
}

static const part *find_part(const collect *c, const webdataset_field *f)
{
    for (size_t i = 0; i < c->parts.n; i++) {
        if (webdataset_field_is(f, c->parts.at[i].extension)) return &c->parts.at[i];
    }
    return NULL;
}

static manta_status fail_missing_member(const collect *c, const char *what)
{
    manta_suggestion near = manta_suggestion_for(what);
    char hint[SUGGEST_TEXT];
    buf there = {0};

    list_parts(c, &there);
    for (size_t i = 0; i < c->parts.n; i++) manta_suggestion_offer(&near, c->parts.at[i].extension);
    manta_status st =
        manta_fail(MANTA_ENOENT, "%s: sample '%.80s' has no member %s; it has: %s%s", c->path, c->key, what,
                   buf_text(&there), manta_suggestion_text(&near, hint, sizeof hint));
    buf_release(&there);
    return st;
}

/* Nobody said what x is: the first sample's images, or its array. */
static manta_status choose_fields(collect *c)
{
    static const char *const tries[] = {"png;jpg;jpeg", "npy"};
    set *s = c->s;

    for (size_t i = 0; i < 2; i++) {
        TRY(webdataset_field_init(&s->fields[0], "x", tries[i], s->options->allow_nan));
        s->n = 1;
        if (find_part(c, &s->fields[0])) break;
        webdataset_field_release(&s->fields[0]);
        s->n = 0;
    }
    if (!s->n) return fail_missing_member(c, "png, jpg, jpeg or npy; say which is x, as in f.tar:x.npy,cls");
    TRY(webdataset_field_init(&s->fields[1], "y", "cls", false));
    if (find_part(c, &s->fields[1])) s->n = 2;
    return MANTA_OK;
}

/* Ends the sample whose members have been collected. */
static manta_status end_sample(collect *c)
{
    set *s = c->s;
    sample k = {.shard = c->shard};

    if (!c->key) return MANTA_OK;
    if (!s->n) TRY(choose_fields(c));
    for (int i = 0; i < s->n; i++) {
        const part *p = find_part(c, &s->fields[i]);
        if (!p) return fail_missing_member(c, s->fields[i].names);
        k.of[i] = p->at;
    }
    k.key = c->key;
    c->key = NULL;
    vec_push(&s->samples, k);
    return MANTA_OK;
}

/* __archive_info__ and such are about the archive. */
static bool is_about(const char *name)
{
    size_t n = strlen(name);

    return n >= 4 && strncmp(name, "__", 2) == 0 && strcmp(name + n - 2, "__") == 0 && !strchr(name, '/');
}

const char *webdataset_key_end(const char *name)
{
    const char *base = strrchr(name, '/');

    base = base ? base + 1 : name;
    const char *dot = strchr(base, '.');
    return dot && dot > base && !is_about(name) ? dot : NULL;
}

static manta_status add_member(collect *c, const tar_member *m)
{
    const char *dot = webdataset_key_end(m->name);

    if (!dot) return MANTA_OK;
    size_t n = (size_t)(dot - m->name);
    if (!c->key || strlen(c->key) != n || memcmp(c->key, m->name, n) != 0) {
        TRY(end_sample(c));
        clear_sample(c);
        c->key = mem_strndup(m->name, n);
    }
    part p = {.extension = mem_strdup(dot + 1), .at = {m->at, m->size}};
    for (char *e = p.extension; *e; e++) *e = (char)tolower((unsigned char)*e);
    for (size_t i = 0; i < c->parts.n; i++) {
        if (strcmp(c->parts.at[i].extension, p.extension) != 0) continue;
        mem_free(p.extension);
        return manta_fail(MANTA_ECORRUPT, "%s: offset %llu: there is a second member '%.120s'", c->path,
                          (unsigned long long)m->at, m->name);
    }
    vec_push(&c->parts, p);
    return MANTA_OK;
}

static manta_status collect_members(collect *c, const seek_file *f)
{
    tar *t = mem_new(sizeof *t);
    tar_member m;
    bool end = false;
    manta_status st;

    tar_init(t, f);
    while (!(st = tar_next(t, &m, &end)) && !end) {
        if ((st = add_member(c, &m))) break;
    }
    tar_release(t);
    mem_free(t);
    return st ? st : end_sample(c);
}

/* Indexes an archive, which it takes. */
static manta_status add_shard(set *s, seek_file f)
{
    collect c = {.s = s, .shard = (uint32_t)s->shards.n};
    seek_file unpacked = {0};
    bool packed;
    manta_status st = tar_is_packed(&f, &packed);

    if (!st && packed && !(st = tar_unpack(&f, &unpacked))) {
        seek_close(&f);
        f = unpacked;
    }
    c.path = f.path;
    if (!st) st = collect_members(&c, &f);
    clear_sample(&c);
    vec_release(&c.parts);
    vec_push(&s->shards, (shard){f, true});
    if (st || f.fd < 0 || s->shards.n <= WEBDATASET_OPEN_SHARDS) return st;
    shard *last = &vec_last(&s->shards);
    char *path = mem_strdup(f.path);
    seek_close(&last->f);
    *last = (shard){.f = {.path = path, .fd = -1}};
    return MANTA_OK;
}

/* ---- which files ------------------------------------------------------------------------------------ */

/* shard-{000000..000003}.tar: the names in turn, every range with every other. */
static manta_status expand_ranges(const char *text, file_names *out)
{
    const char *open = strchr(text, '{'), *dots = open ? strstr(open, "..") : NULL;
    const char *close = dots ? strchr(dots, '}') : NULL;

    if (!close) {
        vec_push(out, mem_strdup(text));
        return MANTA_OK;
    }
    size_t digits = (size_t)(dots - open - 1), last = (size_t)(close - dots - 2);
    if (digits == 0 || last == 0 || digits > 9 || last > 9 || strspn(open + 1, "0123456789") != digits ||
        strspn(dots + 2, "0123456789") != last) {
        return manta_fail(MANTA_EINVAL, "dataset '%s': expected a range of numbers, as in {000000..000003}",
                          text);
    }
    long from = strtol(open + 1, NULL, 10), to = strtol(dots + 2, NULL, 10);
    if (to < from) return manta_fail(MANTA_EINVAL, "dataset '%s': the range ends before it begins", text);
    for (long i = from; i <= to; i++) {
        char *one = mem_printf("%.*s%0*ld%s", (int)(open - text), text, (int)digits, i, close + 1);
        manta_status st = expand_ranges(one, out);
        mem_free(one);
        if (st) return st;
        if (out->n > MAX_SHARDS) {
            return manta_fail(MANTA_EINVAL, "dataset '%s': more than %d files", text, MAX_SHARDS);
        }
    }
    return MANTA_OK;
}

/* A star, question mark or bracket in the last part of a path: the files of that
 * folder which match, in the order of names. */
static manta_status match_pattern(const char *pattern, file_names *out)
{
    const char *slash = strrchr(pattern, '/');
    file_names names = {0};
    size_t before = out->n;

    if (!strpbrk(pattern, "*?[")) {
        vec_push(out, mem_strdup(pattern));
        return MANTA_OK;
    }
    char *folder = slash ? mem_strndup(pattern, (size_t)(slash - pattern) + 1) : mem_strdup("./");
    manta_status st = file_list(folder, &names);
    for (size_t i = 0; !st && i < names.n; i++) {
        if (fnmatch(slash ? slash + 1 : pattern, names.at[i], FNM_PERIOD) != 0) continue;
        vec_push(out, mem_printf("%s%s", slash ? folder : "", names.at[i]));
    }
    if (!st && out->n == before) st = manta_fail(MANTA_ENOENT, "%s: no file is called so", pattern);
    file_names_release(&names);
    mem_free(folder);
    return st;
}

static manta_status find_files(const char *text, file_names *out)
{
    file_names patterns = {0};
    file_info info;
    manta_status st;

    if (!file_stat(text, &info)) { /* a file may have any name */
        vec_push(out, mem_strdup(text));
        return MANTA_OK;
    }
    st = expand_ranges(text, &patterns);
    for (size_t i = 0; !st && i < patterns.n; i++) st = match_pattern(patterns.at[i], out);
    file_names_release(&patterns);
    return st;
}

/* ---- reading -------------------------------------------------------------------------------------------- */

static void member_name(const set *s, const sample *k, int field, char *text, size_t size)
{
    snprintf(text, size, "%s: sample '%.60s', %.30s", s->shards.at[k->shard].f.path, k->key,
             s->fields[field].names);
}

/* The bytes of a member, with a zero byte behind them. */
static manta_status read_member(const set *s, const seek_file *f, const sample *k, int field, uint8_t **out)
{
    char name[400];

    member_name(s, k, field, name, sizeof name);
    uint8_t *data = mem_try_raw((size_t)k->of[field].size + 1);
    if (!data) return manta_fail(MANTA_ENOMEM, "%s: no memory for it", name);
    manta_status st = seek_read(f, k->of[field].at, data, (size_t)k->of[field].size, "a member");
    if (st) {
        mem_try_free(data);
        return st;
    }
    data[k->of[field].size] = 0;
    *out = data;
    return MANTA_OK;
}

static manta_status read_field(const set *s, const seek_file *f, const sample *k, int field, void *out)
{
    char name[400];
    uint8_t *data = NULL;

    TRY(read_member(s, f, k, field, &data));
    member_name(s, k, field, name, sizeof name);
    manta_status st = webdataset_field_read(&s->fields[field], name, data, (size_t)k->of[field].size, out);
    mem_try_free(data);
    return st;
}

static manta_status read_sample(void *ctx, void *state, int64_t i, void *const *out)
{
    const set *s = ctx;
    const sample *k = &s->samples.at[i];
    const shard *h = &s->shards.at[k->shard];
    seek_file own = {0};
    manta_status st = MANTA_OK;

    (void)state;
    if (!h->open) TRY(seek_open(h->f.path, &own));
    for (int c = 0; c < s->n && !st; c++) {
        if (out[c]) st = read_field(s, h->open ? &h->f : &own, k, c, out[c]);
    }
    seek_close(&own);
    return st;
}

/* ---- opening -------------------------------------------------------------------------------------------- */

static manta_status decide_columns(set *s, const manta_open_options *o)
{
    char name[400];

    if (!s->samples.n) {
        return manta_fail(MANTA_ENOENT, "%s: no samples in it, expected members such as 000001.jpg",
                          s->shards.at[0].f.path);
    }
    const sample *k = &s->samples.at[0];
    for (int c = 0; c < s->n; c++) {
        uint8_t *data = NULL;
        TRY(read_member(s, &s->shards.at[k->shard].f, k, c, &data));
        member_name(s, k, c, name, sizeof name);
        manta_status st = webdataset_field_decide(&s->fields[c], o, name, data, (size_t)k->of[c].size);
        mem_try_free(data);
        if (st) return st;
    }
    return MANTA_OK;
}

static manta_status begin_set(const char *x, const char *y, const manta_open_options *o, set **out)
{
    set *s = mem_new(sizeof *s);
    manta_status st = MANTA_OK;

    s->options = o;
    if (x && !(st = webdataset_field_init(&s->fields[0], "x", x, o->allow_nan))) s->n = 1;
    if (!st && x && y && !(st = webdataset_field_init(&s->fields[1], "y", y, o->allow_nan))) s->n = 2;
    if (st) {
        set_free(s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}

static bool is_scaled(const webdataset_field *f)
{
    return f->kind == WEBDATASET_IMAGE || f->kind == WEBDATASET_BYTES;
}

/* A dataset over the indexed set, which it takes; `st` is how indexing went. */
static manta_status finish_set(set *s, manta_status st, const manta_open_options *o, manta_dataset **out)
{
    if (!st) st = decide_columns(s, o);
    s->options = NULL;
    if (st) {
        set_free(s);
        return st;
    }
    source_indexed src = {
        .count = (int64_t)s->samples.n, .n = s->n, .ctx = s, .read = read_sample, .release = set_free};
    for (int c = 0; c < s->n; c++) src.columns[c] = s->fields[c].column;
    bool scale = is_scaled(&s->fields[0]) && !o->raw;
    manta_dataset *d = source_from_reader(&src);
    if (scale) d = manta_dataset_scale(d, "x", 255);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}

manta_status webdataset_open_file(seek_file f, const char *x, const char *y, const manta_open_options *o,
                                  manta_dataset **out)
{
    set *s = NULL;
    manta_status st = begin_set(x, y, o, &s);

    if (st) {
        seek_close(&f);
        return st;
    }
    return finish_set(s, add_shard(s, f), o, out);
}

manta_status webdataset_open(const char *paths, const char *x, const char *y, const manta_open_options *o,
                             manta_dataset **out)
{
    file_names names = {0};
    set *s = NULL;
    manta_status st = begin_set(x, y, o, &s);
    size_t all;

    if (st) return st;
    st = find_files(paths, &names);
    all = names.n;
    if (!st) st = shard_files(o, paths, &names);
    for (size_t i = 0; i < names.n && !st; i++) {
        seek_file f;
        if (!(st = seek_open(names.at[i], &f))) st = add_shard(s, f);
    }
    file_names_release(&names);
    TRY(finish_set(s, st, o, out));
    *out = shard_samples(o, all, *out);
    return MANTA_OK;
}
