/* manifest.c - what a checkpoint says about itself. */
#include "train/checkpoint/manifest.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"

#define FLAGS (JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_SORT_KEYS)

static char *owned_text(const char *text)
{
    return mem_strdup(text);
}

void manifest_init(manifest *m, const manta_checkpoint_info *info)
{
    m->info = *info;
    for (int i = 0; i < info->n_notes; i++) {
        vec_push(&m->notes, (manta_note){.name = owned_text(info->notes[i].name),
                                         .text = owned_text(info->notes[i].text)});
    }
    m->info.notes = m->notes.at;
}

void manifest_add(manifest *m, const char *name, file_sum sum)
{
    vec_push(&m->files, (manifest_file){.name = owned_text(name), .sum = sum});
}

void manifest_release(manifest *m)
{
    for (size_t i = 0; i < m->notes.n; i++) {
        mem_free((char *)(uintptr_t)m->notes.at[i].name);
        mem_free((char *)(uintptr_t)m->notes.at[i].text);
    }
    for (size_t i = 0; i < m->files.n; i++) mem_free(m->files.at[i].name);
    vec_release(&m->notes);
    vec_release(&m->files);
    memset(m, 0, sizeof *m);
}

bool manifest_can_name(const char *name)
{
    json_t *text = json_string(name);
    bool can = text && strcmp(name, MANIFEST_NAME) != 0;

    json_decref(text);
    return can;
}

/* ---- writing ---- */

static json_t *crc_text(uint32_t crc)
{
    return json_sprintf("%08x", crc);
}

static json_t *metrics_object(const manta_metrics *m)
{
    json_t *o = json_object();

    for (int i = 0; i < m->n; i++) {
        json_object_set_new(o, m->name[i], isfinite(m->value[i]) ? json_real(m->value[i]) : json_null());
    }
    return o;
}

/* All but the checksum. */
static json_t *body_json(const manifest *m)
{
    const manta_checkpoint_info *i = &m->info;
    json_t *files = json_array(), *notes = json_object();

    for (size_t k = 0; k < m->files.n; k++) {
        const manifest_file *f = &m->files.at[k];
        json_array_append_new(files, json_pack("{s:s, s:I, s:o}", "name", f->name, "size",
                                               (json_int_t)f->sum.size, "crc32c", crc_text(f->sum.crc)));
    }
    for (size_t k = 0; k < m->notes.n; k++) {
        json_t *text = json_string(m->notes.at[k].text);
        json_object_set_new(notes, m->notes.at[k].name, text ? text : json_string(""));
    }
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "manta_checkpoint", 1, "sequence",
                     (json_int_t)i->sequence, "epoch", (json_int_t)i->epoch, "step", (json_int_t)i->step,
                     "iterations", (json_int_t)i->iterations, "metrics", metrics_object(&i->metrics), "notes",
                     notes, "files", files);
}

static uint32_t sum_of(const json_t *object)
{
    char *text = json_dumps(object, FLAGS);
    uint32_t crc;

    if (!text) abort(); /* small control memory */
    crc = crc32c(0, text, strlen(text));
    free(text);
    return crc;
}

char *manifest_text(const manifest *m)
{
    json_t *o = body_json(m);
    char *text;

    if (!o) abort();
    json_object_set_new(o, "crc32c", crc_text(sum_of(o)));
    text = json_dumps(o, FLAGS);
    json_decref(o);
    if (!text) abort();
    return text;
}

/* ---- reading ---- */

static manta_status fail_damaged(const char *path, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s is damaged: %s", path, what);
}

static bool crc_of(const json_t *v, uint32_t *out)
{
    const char *text = json_string_value(v);
    char *end;

    if (!text || strlen(text) != 8) return false;
    *out = (uint32_t)strtoul(text, &end, 16);
    return !*end && strspn(text, "0123456789abcdef") == 8;
}

/* A name that stays inside the folder. */
static bool is_inside(const char *name)
{
    if (!name || !*name || *name == '/') return false;
    for (const char *p = name; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
        if (!strncmp(p, "..", 2) && (p[2] == '/' || !p[2])) return false;
        if (!*p || *p == '/') return false;
    }
    return true;
}

static bool int_of(const json_t *o, const char *key, int64_t *out)
{
    const json_t *v = json_object_get(o, key);

    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0;
}

static bool read_metrics(const json_t *o, manta_metrics *m)
{
    const char *key;
    json_t *v;

    if (!json_is_object(o) || json_object_size(o) > MANTA_MAX_METRICS) return false;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        if (strlen(key) >= sizeof m->name[0] || (!json_is_number(v) && !json_is_null(v))) return false;
        memcpy(m->name[m->n], key, strlen(key) + 1);
        m->value[m->n++] = json_is_null(v) ? (double)NAN : json_number_value(v);
    }
    return true;
}

static bool read_body(const json_t *o, manifest *m)
{
    const json_t *notes = json_object_get(o, "notes"), *files = json_object_get(o, "files");
    const char *key;
    json_t *v;
    size_t i;
    int64_t size;
    uint32_t crc;

    if (!int_of(o, "sequence", &m->info.sequence) || !int_of(o, "epoch", &m->info.epoch) ||
        !int_of(o, "step", &m->info.step) || !int_of(o, "iterations", &m->info.iterations))
        return false;
    if (!read_metrics(json_object_get(o, "metrics"), &m->info.metrics)) return false;
    if (!json_is_object(notes) || !json_is_array(files)) return false;
    json_object_foreach((json_t *)(uintptr_t)notes, key, v)
    {
        if (!json_is_string(v)) return false;
        vec_push(&m->notes, (manta_note){.name = owned_text(key), .text = owned_text(json_string_value(v))});
    }
    m->info.n_notes = (int)m->notes.n;
    m->info.notes = m->notes.at;
    json_array_foreach(files, i, v)
    {
        const char *name = json_string_value(json_object_get(v, "name"));
        if (!is_inside(name) || !int_of(v, "size", &size) || !crc_of(json_object_get(v, "crc32c"), &crc))
            return false;
        manifest_add(m, name, (file_sum){.size = (uint64_t)size, .crc = crc});
    }
    return true;
}

/* Whether this is how we write it, byte for byte: 0.10 for 0.1, or a letter of
 * a checksum in another case, is a bit that has turned too. */
static bool is_written_so(const json_t *o, const char *text, size_t n)
{
    char *again = json_dumps(o, FLAGS);
    bool same = again && strlen(again) == n && !memcmp(again, text, n);

    free(again);
    return same;
}

manta_status manifest_parse(const char *path, const char *text, size_t n, manifest *out)
{
    json_error_t why;
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    manta_status st = MANTA_OK;
    uint32_t crc;

    if (!json_is_object(o) || !crc_of(json_object_get(o, "crc32c"), &crc)) {
        st = fail_damaged(path, "it is no manifest");
    } else {
        bool canonical = is_written_so(o, text, n);
        json_object_del(o, "crc32c");
        if (json_integer_value(json_object_get(o, "manta_checkpoint")) > 1) {
            st = manta_fail(MANTA_EUNSUPPORTED,
                            "%s was made by a later version of Manta, which this one cannot read", path);
        } else if (!canonical || sum_of(o) != crc) {
            st = fail_damaged(path, "its checksum does not fit");
        } else if (json_integer_value(json_object_get(o, "manta_checkpoint")) != 1 || !read_body(o, out)) {
            st = fail_damaged(path, "it is no manifest");
        }
    }
    json_decref(o);
    return st;
}

/* ---- metrics ---- */

bool manifest_greater_is_better(const char *metric, const char *order)
{
    static const char *const good[] = {"acc", "auc", "precision", "recall", "f1", "fmeasure", "iou", "r2"};

    if (order && !strcmp(order, "max")) return true;
    if (order && !strcmp(order, "min")) return false;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (strstr(metric, good[i])) return true;
    }
    return false;
}
