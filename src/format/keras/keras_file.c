/* keras_file.c - .keras archives, a bare config.json, and .weights.h5.
 *
 *   m.keras = zip of   metadata.json       version and date; informative
 *                      config.json         the model and what it was compiled with
 *                      model.weights.h5    variables and optimizer state
 *
 * A folder with the same three files is one too. When reading, the archive is
 * laid into memory so that the weights in it are aligned, and arrays become
 * views of it. When writing, config.json is filled up with spaces to the same
 * end, so that a mapped file can be used as it lies. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <manta/version.h>

#include "base/mem.h"
#include "format/codec/input.h"
#include "format/codec/zip.h"
#include "format/hdf5/h5.h"
#include "format/hdf5/h5_out.h"
#include "format/keras/keras_adapt.h"
#include "format/keras/keras_compile.h"
#include "format/keras/keras_config.h"
#include "format/keras/keras_draft.h"
#include "format/keras/keras_outline.h"
#include "format/keras/keras_state.h"
#include "format/model/model_file.h"
#include "os/file.h"
#include "os/sys.h"

#define CONFIG  "config.json"
#define WEIGHTS "model.weights.h5"

/* ---- reading archives ---- */

static manta_status read_config(const char *path, const char *text, size_t size, h5_file *f, manta_saved *s)
{
    char *where = mem_printf("%s: " CONFIG, path);
    json_t *config = NULL;
    manta_status st = keras_json_parse(where, text, size, &config);

    if (!st) st = keras_adapt_model(path, config, f, &s->model);
    if (!st) keras_compile_read(s, path, json_object_get(config, "compile_config"), s->model);
    json_decref(config);
    mem_free(where);
    return st;
}

static const manta_optimizer *optimizer_of(const manta_saved *s)
{
    return s->optimizer_error.code ? NULL : &s->optimizer;
}

/* Where the weights begin, going by the local headers at the front; 0 when that
 * cannot be told. Only the alignment depends on it. */
static size_t guess_weights_offset(const uint8_t *head, size_t n)
{
    size_t at = 0;

    while (at + 30 < n && !memcmp(head + at, "PK\3\4", 4)) {
        const uint8_t *p = head + at;
        size_t packed = (size_t)p[18] | (size_t)p[19] << 8 | (size_t)p[20] << 16 | (size_t)p[21] << 24;
        size_t name = (size_t)p[26] | (size_t)p[27] << 8, extra = (size_t)p[28] | (size_t)p[29] << 8;
        if (name == strlen(WEIGHTS) && at + 30 + name <= n && !memcmp(p + 30, WEIGHTS, name)) {
            return at + 30 + name + extra;
        }
        at += 30 + name + extra + packed;
    }
    return 0;
}

/* The whole file in memory, placed so that its weights are 64-byte aligned. */
typedef struct archive {
    void *memory; /* owned: mem_try_free() */
    uint8_t *data;
    size_t size;
} archive;

static manta_status read_fully(int fd, const char *path, uint8_t *to, size_t from, size_t size)
{
    while (from < size) {
        size_t part = size - from < (1u << 22) ? size - from : 1u << 22;
        ssize_t got;
        mem_touch(to + from, part);
        got = os->pread(fd, to + from, part, (off_t)from);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return file_fail(errno, "reading", path);
        if (got == 0) return manta_fail(MANTA_EIO, "reading %s: it became shorter meanwhile", path);
        from += (size_t)got;
    }
    return MANTA_OK;
}

static manta_status archive_read(const char *path, archive *out)
{
    enum { HEAD = 1 << 16 };
    uint8_t *head = mem_new(HEAD);
    archive a = {0};
    struct stat info;
    manta_status st = MANTA_OK;
    size_t front, shift;
    int fd;

    do fd = os->open(path, O_RDONLY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        st = file_fail(errno, "opening", path);
        mem_free(head);
        return st;
    }
    if (os->fstat(fd, &info)) {
        st = file_fail(errno, "looking at", path);
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        st = manta_fail(MANTA_EINVAL, "reading %s: it is no file", path);
        goto out;
    }
    a.size = (size_t)info.st_size;
    front = a.size < HEAD ? a.size : HEAD;
    if ((st = read_fully(fd, path, head, 0, front))) goto out;
    shift = (64 - guess_weights_offset(head, front) % 64) % 64;
    a.memory = mem_try_raw(a.size + 64);
    if (!a.memory) {
        st = manta_fail(MANTA_ENOMEM, "%s: no memory for its %zu bytes", path, a.size);
        goto out;
    }
    a.data = (uint8_t *)a.memory + shift;
    if (front) memcpy(a.data, head, front);
    if ((st = read_fully(fd, path, a.data, front, a.size))) goto out;
    *out = a;
    a.memory = NULL;
out:
    mem_try_free(a.memory);
    mem_free(head);
    os->close(fd);
    return st;
}

/* Refuses a member that is a text longer than any model's, before it is unpacked. */
static manta_status check_text(const zip *z, const zip_entry *e)
{
    if (e->size <= KERAS_JSON_MAX) return MANTA_OK;
    return manta_fail(MANTA_ENOMEM, "%s: %s has %zu bytes, expected at most %zu", z->path, e->name, e->size,
                      KERAS_JSON_MAX);
}

/* A member's bytes, checked; kept by s, or inside the archive. *bytes NULL: there is none. */
static manta_status read_member(const zip *z, const char *name, manta_saved *s, const uint8_t **bytes,
                                size_t *size)
{
    const zip_entry *e = zip_find(z, name);
    void *owned = NULL;

    *bytes = NULL;
    if (!e) return MANTA_OK;
    if (strcmp(name, WEIGHTS) != 0) TRY(check_text(z, e));
    TRY(zip_extract(z, e, bytes, &owned));
    saved_keep(s, owned);
    *size = e->size;
    return MANTA_OK;
}

/* The weights must start on an 8-byte boundary, or all of them are copied. */
static manta_status align_weights(const char *path, manta_saved *s, const uint8_t **bytes, size_t size)
{
    void *copy;

    if (((uintptr_t)*bytes & 7) == 0) return MANTA_OK;
    copy = mem_try_raw(size + 1);
    if (!copy) return manta_fail(MANTA_ENOMEM, "%s: no memory for its %zu bytes of weights", path, size);
    memcpy(copy, *bytes, size);
    saved_keep(s, copy);
    *bytes = copy;
    return MANTA_OK;
}

/* Version and date, where they can be read; nothing depends on them. */
static void read_metadata(manta_saved *s, const char *text, size_t size)
{
    json_t *o = NULL;
    const char *key;
    json_t *v;

    if (!text || size > 4096 || keras_json_parse("metadata.json", text, size, &o)) return;
    json_object_foreach(o, key, v)
    {
        if (json_is_string(v)) saved_note(s, key, json_string_value(v));
    }
    json_decref(o);
}

static manta_status read_weights(const char *path, const uint8_t *weights, size_t size, const uint8_t *config,
                                 size_t config_size, const manta_read_options *o, manta_saved *s)
{
    char *where = mem_printf("%s: " WEIGHTS, path);
    h5_file *f = NULL;
    manta_status st = h5_open(where, weights, size, &f);

    if (!st) st = read_config(path, (const char *)config, config_size, f, s);
    if (!st && !o->model_only) st = keras_state_read(where, f, s->model, optimizer_of(s), s);
    h5_close(f);
    mem_free(where);
    return st;
}

static manta_status read_members(const char *path, const zip *z, const manta_read_options *o, manta_saved *s)
{
    const uint8_t *metadata, *config, *weights;
    size_t metadata_size = 0, config_size = 0, weights_size = 0;

    TRY(read_member(z, CONFIG, s, &config, &config_size));
    if (!config) return manta_fail(MANTA_ENOENT, "%s: the archive has no " CONFIG, path);
    if (!read_member(z, "metadata.json", s, &metadata, &metadata_size)) {
        read_metadata(s, (const char *)metadata, metadata_size);
    }
    if (!zip_find(z, WEIGHTS) && zip_find(z, "model.weights.npz")) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: its weights are model.weights.npz, pickled objects; expected " WEIGHTS, path);
    }
    if (!zip_find(z, WEIGHTS)) return manta_fail(MANTA_ENOENT, "%s: the archive has no " WEIGHTS, path);
    TRY(read_member(z, WEIGHTS, s, &weights, &weights_size));
    TRY(align_weights(path, s, &weights, weights_size));
    return read_weights(path, weights, weights_size, config, config_size, o, s);
}

/* A folder that holds the three files. */
static manta_status read_folder(const char *path, const manta_read_options *o, manta_saved *s)
{
    char *config_path = mem_printf("%s/" CONFIG, path), *weights_path = mem_printf("%s/" WEIGHTS, path);
    void *config = NULL, *weights = NULL;
    size_t config_size = 0, weights_size = 0;
    manta_status st = file_read(config_path, KERAS_JSON_MAX, &config, &config_size);

    if (!st) st = file_read(weights_path, SIZE_MAX / 2, &weights, &weights_size);
    saved_keep(s, config);
    saved_keep(s, weights);
    if (!st) st = read_weights(path, weights, weights_size, config, config_size, o, s);
    mem_free(config_path);
    mem_free(weights_path);
    return st;
}

static bool is_folder(const char *path)
{
    file_info info;

    return !file_stat(path, &info) && info.is_folder;
}

static manta_status keras_read(const char *path, const manta_read_options *o, manta_saved *s)
{
    archive a = {0};
    zip z = {0};
    manta_status st;

    if (is_folder(path)) return read_folder(path, o, s);
    TRY(archive_read(path, &a));
    saved_keep(s, a.memory);
    TRY(zip_parse(path, a.data, a.size, &z));
    st = read_members(path, &z, o, s);
    zip_release(&z);
    return st;
}

static model_match keras_probe(const char *path, const uint8_t *head, size_t n)
{
    if (model_head_is_zip(head, n, "metadata.json") || model_head_is_zip(head, n, CONFIG) ||
        model_head_is_zip(head, n, "model.weights.")) {
        return MODEL_CONTENTS;
    }
    if (n == 0 && is_folder(path)) {
        char *config = mem_printf("%s/" CONFIG, path), *weights = mem_printf("%s/" WEIGHTS, path);
        file_info info;
        bool both = !file_stat(config, &info) && !file_stat(weights, &info);
        mem_free(config);
        mem_free(weights);
        return both ? MODEL_CONTENTS : MODEL_NO;
    }
    return model_path_ends(path, ".keras") ? MODEL_NAME : MODEL_NO;
}

/* The outline of the model whose configuration is text[0..size). */
static manta_status outline_text(const char *path, const void *text, size_t size, manta_outline *out)
{
    char *where = mem_printf("%s: " CONFIG, path);
    json_t *config = NULL;
    manta_status st = keras_json_parse(where, text, size, &config);

    if (!st) st = keras_outline_read(path, config, out);
    json_decref(config);
    mem_free(where);
    return st;
}

static manta_status outline_file(const char *path, const char *config, manta_outline *out)
{
    void *text = NULL;
    size_t size = 0;
    manta_status st = file_read(config, KERAS_JSON_MAX, &text, &size);

    if (!st) st = outline_text(path, text, size, out);
    mem_try_free(text);
    return st;
}

static manta_status config_outline(const char *path, manta_outline *out)
{
    return outline_file(path, path, out);
}

static manta_status keras_outline(const char *path, manta_outline *out)
{
    archive a = {0};
    zip z = {0};
    const zip_entry *e;
    const uint8_t *text = NULL;
    void *owned = NULL;
    manta_status st;

    if (is_folder(path)) {
        char *config = mem_printf("%s/" CONFIG, path);
        st = outline_file(path, config, out);
        mem_free(config);
        return st;
    }
    TRY(archive_read(path, &a));
    st = zip_parse(path, a.data, a.size, &z);
    e = st ? NULL : zip_find(&z, CONFIG);
    if (!st && !e) st = manta_fail(MANTA_ENOENT, "%s: the archive has no " CONFIG, path);
    if (!st) st = check_text(&z, e);
    if (!st) st = zip_extract(&z, e, &text, &owned);
    if (!st) st = outline_text(path, text, e->size, out);
    mem_try_free(owned);
    zip_release(&z);
    mem_try_free(a.memory);
    return st;
}

/* ---- writing archives ---- */

/* The configuration, filled up with spaces until what follows it in the archive is aligned. */
static manta_status make_config(const manta_contents *c, const keras_tree *t, size_t before, uint64_t weights,
                                buf *out)
{
    size_t header = 30 + strlen(WEIGHTS) + (weights >= 0xffffffff ? 20 : 0);
    json_t *config = NULL;
    char *text;

    TRY(keras_config_write(t, false, &config));
    json_object_set_new(config, "compile_config", keras_compile_write(c, false));
    text = json_dumps(config, JSON_COMPACT);
    json_decref(config);
    if (!text) return manta_fail(MANTA_EINVAL, "model '%s' has names that are no UTF-8", t->model->name);
    buf_add_text(out, text);
    free(text);
    while ((before + out->n + header) % 64) buf_add_char(out, ' ');
    return MANTA_OK;
}

static const char *note_or(const manta_contents *c, const char *name, const char *otherwise)
{
    for (int i = 0; i < c->n_notes; i++) {
        if (!strcmp(c->notes[i].name, name)) return c->notes[i].text;
    }
    return otherwise;
}

/* Keras never reads it; without a date of its own the same model gives the same bytes. */
static void make_metadata(const manta_contents *c, buf *out)
{
    json_t *o = json_object();
    char *text;

    json_object_set_new(o, "keras_version", json_string(note_or(c, "keras_version", "3.0.5")));
    json_object_set_new(o, "date_saved", json_string(note_or(c, "date_saved", "1980-01-01@00:00:00")));
    json_object_set_new(o, "written_by", json_string("Manta " MANTA_VERSION_TEXT));
    for (int i = 0; i < c->n_losses; i++) {
        const char *name = c->losses[i].name;
        if (c->losses[i].fn) json_object_set_new(o, "own_loss", json_string(name ? name : ""));
    }
    text = json_dumps(o, 0);
    buf_add_text(out, text ? text : "{}");
    free(text);
    json_decref(o);
}

static manta_status write_archive(file_writer *w, const buf *metadata, const buf *config, const h5_out *h)
{
    zip_writer z = {.w = w};
    uint32_t crc = 0;
    manta_status st = file_writer_reserve(w, metadata->n + config->n + h->size + 1024);

    if (!st) st = zip_add(&z, "metadata.json", metadata->at, metadata->n);
    if (!st) st = zip_add(&z, CONFIG, config->at, config->n);
    if (!st) st = h5_out_emit(h, zip_to_sum, &crc);
    if (!st) st = zip_begin(&z, WEIGHTS, h->size, crc);
    if (!st) st = h5_out_emit(h, zip_to_member, &z);
    if (!st) st = zip_end(&z);
    zip_writer_release(&z);
    return st;
}

static manta_status keras_write(const char *path, const manta_contents *c)
{
    size_t before;
    keras_draft d = {0};
    buf metadata = {0}, config = {0};
    file_writer *w = NULL;
    manta_status st;

    if ((st = keras_draft_model(&d, path, c))) goto out;
    if ((st = keras_draft_arrays(&d, path, c))) goto out;
    keras_state_place(&d.state, &d.file);
    h5_out_layout(&d.file);
    make_metadata(c, &metadata);
    before = 30 + strlen("metadata.json") + metadata.n + 30 + strlen(CONFIG);
    if ((st = keras_draft_fail(path, make_config(c, d.tree, before, d.file.size, &config)))) goto out;
    if ((st = file_writer_open(path, &w))) goto out;
    if ((st = write_archive(w, &metadata, &config, &d.file))) goto out;
    st = file_writer_commit(w);
out:
    file_writer_free(w);
    buf_release(&metadata);
    buf_release(&config);
    keras_draft_release(&d);
    return st;
}

const model_format model_keras = {.name = "keras",
                                  .about = "a Keras model with its weights and optimizer state",
                                  .ending = ".keras",
                                  .has_model = true,
                                  .probe = keras_probe,
                                  .read = keras_read,
                                  .write = keras_write,
                                  .outline = keras_outline};

/* ---- config.json ---- */

static model_match config_probe(const char *path, const uint8_t *head, size_t n)
{
    size_t i = 0;

    while (i < n && strchr(" \t\r\n", head[i])) i++;
    if (i < n && head[i] == '{' &&
        (memmem(head, n, "\"Sequential\"", 12) || memmem(head, n, "\"Functional\"", 12))) {
        return MODEL_CONTENTS;
    }
    return model_path_ends(path, ".json") ? MODEL_NAME : MODEL_NO;
}

static manta_status config_read(const char *path, const manta_read_options *o, manta_saved *s)
{
    json_t *config = NULL;
    void *text = NULL;
    size_t size = 0;
    manta_status st;

    (void)o;
    TRY(file_read(path, KERAS_JSON_MAX, &text, &size));
    st = keras_json_parse(path, text, size, &config);
    if (!st) st = keras_config_read(path, config, &s->model);
    if (!st) keras_compile_read(s, path, json_object_get(config, "compile_config"), s->model);
    json_decref(config);
    mem_try_free(text);
    return st;
}

static manta_status config_write(const char *path, const manta_contents *c)
{
    keras_draft d = {0};
    buf config = {0};
    manta_status st = keras_draft_model(&d, path, c);

    if (!st) st = keras_draft_fail(path, make_config(c, d.tree, 0, 0, &config));
    if (!st) st = file_replace(path, config.at, config.n);
    buf_release(&config);
    keras_draft_release(&d);
    return st;
}

const model_format model_keras_config = {.name = "config",
                                         .about = "a Keras model without weights",
                                         .ending = ".json",
                                         .has_model = true,
                                         .probe = config_probe,
                                         .read = config_read,
                                         .write = config_write,
                                         .outline = config_outline};

/* ---- .weights.h5 ---- */

static model_match weights_probe(const char *path, const uint8_t *head, size_t n)
{
    if (!model_path_ends(path, ".weights.h5")) return MODEL_NO;
    return h5_is(head, n) ? MODEL_CONTENTS : MODEL_NAME;
}

/* Everything in the file, under its own path. */
static manta_status read_all(h5_file *f, const char *group, int depth, int *left, manta_saved *s)
{
    h5_names found = {0};
    manta_status st = h5_list(f, group, &found);

    for (size_t i = 0; i < found.n && !st; i++) {
        char *at = mem_printf("%s%s%s", group, *group ? "/" : "", found.at[i]);
        h5_kind kind;
        st = h5_find(f, at, &kind);
        if (!st && --*left < 0)
            st = manta_fail(MANTA_ECORRUPT, "/%s: the HDF5 file has more objects than are read", at);
        if (!st && kind == H5_DATASET) st = h5_read(f, at, s, at);
        if (!st && kind == H5_GROUP && depth < 32) st = read_all(f, at, depth + 1, left, s);
        mem_free(at);
    }
    h5_names_release(&found);
    return st;
}

manta_status keras_weights_read(const char *path, h5_file *f, const manta_read_options *o, manta_saved *s)
{
    int left = 100000;

    if (o->model_only) return MANTA_OK;
    if (!o->like) return read_all(f, "", 0, &left, s);
    return keras_state_read(path, f, o->like, NULL, s);
}

static manta_status weights_read(const char *path, const manta_read_options *o, manta_saved *s)
{
    h5_file *f = NULL;
    archive a = {0};
    manta_status st;

    TRY(archive_read(path, &a));
    saved_keep(s, a.memory);
    TRY(h5_open(path, a.data, a.size, &f));
    st = keras_weights_read(path, f, o, s);
    h5_close(f);
    return st;
}

static manta_status weights_write(const char *path, const manta_contents *c)
{
    manta_contents no_optimizer = *c;
    keras_draft d = {0};
    manta_status st = keras_draft_model(&d, path, c);

    no_optimizer.optimizer = NULL; /* Keras's save_weights() leaves it out too */
    if (!st) st = keras_draft_arrays(&d, path, &no_optimizer);
    if (!st) {
        keras_state_place(&d.state, &d.file);
        h5_out_layout(&d.file);
        st = h5_out_save(&d.file, path);
    }
    keras_draft_release(&d);
    return st;
}

const model_format model_weights_h5 = {.name = "weights.h5",
                                       .about = "the weights of a Keras model",
                                       .ending = ".weights.h5",
                                       .probe = weights_probe,
                                       .read = weights_read,
                                       .write = weights_write};
