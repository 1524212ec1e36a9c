/* model_saved.c - what was read from a file, and what is to be written; what probes
 * ask of a file's name and first bytes. */
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "format/codec/input.h"
#include "format/model/model_file.h"

/* ---- probes ---- */

bool model_path_ends(const char *path, const char *ending)
{
    size_t n = strlen(path), k = strlen(ending);

    return n > k && strcmp(path + n - k, ending) == 0;
}

bool model_head_is_zip(const uint8_t *head, size_t n, const char *part)
{
    size_t name;

    if (n < 30 || memcmp(head, "PK\3\4", 4) != 0) return false;
    name = (size_t)head[26] | (size_t)head[27] << 8;
    if (name > n - 30) name = n - 30;
    return memmem(head + 30, name, part, strlen(part)) != NULL;
}

/* ---- coming and going ---- */

manta_saved *saved_make(const model_format *f)
{
    manta_saved *s = mem_new(sizeof *s);

    s->format = f->name;
    s->optimizer_error.code = s->losses_error.code = s->metrics_error.code = MANTA_ENOENT;
    return s;
}

void manta_saved_drop_arrays(manta_saved *s)
{
    REFUSE_NULL_AND_RETURN(s);

    for (size_t i = 0; i < s->memory.n; i++) s->memory.at[i].release(s->memory.at[i].ctx);
    vec_release(&s->memory);
    vec_release(&s->arrays);
    map_release(&s->index);
}

void manta_saved_free(manta_saved *s)
{
    if (!s) return;
    manta_model_free(s->model);
    manta_saved_drop_arrays(s);
    for (size_t i = 0; i < s->texts.n; i++) mem_free(s->texts.at[i]);
    vec_release(&s->losses);
    vec_release(&s->metrics);
    vec_release(&s->notes);
    vec_release(&s->texts);
    mem_free(s);
}

/* ---- filling in ---- */

const char *saved_text(manta_saved *s, const char *text)
{
    vec_push(&s->texts, mem_strdup(text));
    return vec_last(&s->texts);
}

manta_status saved_add(manta_saved *s, const char *name, const manta_array *a)
{
    if (map_find(&s->index, name)) return manta_fail(MANTA_EEXIST, "two arrays are called '%s'", name);
    *map_put(&s->index, name) = (int)s->arrays.n;
    vec_push(&s->arrays, (manta_column){.name = saved_text(s, name), .array = *a});
    return MANTA_OK;
}

void saved_keep(manta_saved *s, void *memory)
{
    if (memory) saved_own(s, mem_try_free, memory);
}

void saved_own(manta_saved *s, void (*release)(void *ctx), void *ctx)
{
    vec_push(&s->memory, (saved_memory){release, ctx});
}

manta_status saved_new_array(manta_saved *s, const char *name, manta_dtype t, int ndim, const int64_t *shape,
                             manta_array *out)
{
    size_t size;
    void *memory;

    if (ndim < 0 || ndim > MANTA_MAX_DIMS || !input_bytes(ndim, shape, manta_dtype_size(t), &size)) {
        return manta_fail(MANTA_EINVAL, "array '%s' has a shape of too many dimensions or elements", name);
    }
    memory = mem_try_raw(size ? size : 1);
    if (!memory) return manta_fail(MANTA_ENOMEM, "no memory for the %zu bytes of array '%s'", size, name);
    saved_keep(s, memory);
    *out = manta_array_of(t, ndim, shape, memory);
    return saved_add(s, name, out);
}

void saved_note(manta_saved *s, const char *name, const char *text)
{
    manta_note note = {.name = saved_text(s, name)};

    note.text = saved_text(s, text);
    vec_push(&s->notes, note);
}

manta_status saved_check(const manta_saved *s, const char *path, const manta_model *m)
{
    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_variable_info v = manta_model_variable(m, i);
        const manta_array *a = manta_saved_find(s, v.name);
        char given[96], expected[96];
        if (!a) {
            return manta_fail(MANTA_ENOENT, "%s has no array '%s', which model '%s' needs", path, v.name,
                              manta_model_name(m));
        }
        if (a->ndim != v.ndim || memcmp(a->shape, v.shape, (size_t)v.ndim * sizeof *v.shape) != 0) {
            return manta_fail(MANTA_EINVAL, "%s: array '%s' has shape %s, model '%s' expects %s", path,
                              v.name, manta_shape_text(a->ndim, a->shape, given, sizeof given),
                              manta_model_name(m),
                              manta_shape_text(v.ndim, v.shape, expected, sizeof expected));
        }
    }
    return MANTA_OK;
}

/* ---- reading back ---- */

const char *manta_saved_format(const manta_saved *s)
{
    REFUSE_NULL_OR(s, NULL);
    return s->format;
}

const manta_model *manta_saved_model(const manta_saved *s)
{
    REFUSE_NULL_OR(s, NULL);
    return s->model;
}

manta_model *manta_saved_take_model(manta_saved *s)
{
    REFUSE_NULL_OR(s, NULL);

    manta_model *m = s->model;

    s->model = NULL;
    return m;
}

/* Raises what the reader noted, with a sentence also when there was nothing. */
static manta_status fail_as_recorded(const manta_error *e, const char *what)
{
    if (e->code == MANTA_ENOENT && !e->text[0]) {
        return manta_fail(MANTA_ENOENT, "the file says nothing of %s", what);
    }
    return manta_error_raise(e);
}

manta_status manta_saved_optimizer(const manta_saved *s, manta_optimizer *out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(out);

    if (s->optimizer_error.code) return fail_as_recorded(&s->optimizer_error, "an optimizer");
    *out = s->optimizer;
    return MANTA_OK;
}

manta_status manta_saved_losses(const manta_saved *s, int *n, const manta_loss **out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(n);
    REFUSE_NULL(out);

    if (s->losses_error.code) return fail_as_recorded(&s->losses_error, "a loss");
    *n = (int)s->losses.n;
    *out = s->losses.at;
    return MANTA_OK;
}

manta_status manta_saved_metrics(const manta_saved *s, int *n, const manta_metric **out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(n);
    REFUSE_NULL(out);

    if (s->metrics_error.code) return fail_as_recorded(&s->metrics_error, "metrics");
    *n = (int)s->metrics.n;
    *out = s->metrics.at;
    return MANTA_OK;
}

int manta_saved_arrays(const manta_saved *s)
{
    REFUSE_NULL_OR(s, 0);
    return (int)s->arrays.n;
}

const manta_column *manta_saved_at(const manta_saved *s, int i)
{
    REFUSE_NULL_OR(s, NULL);
    return i >= 0 && i < (int)s->arrays.n ? &s->arrays.at[i] : NULL;
}

const manta_array *manta_saved_find(const manta_saved *s, const char *name)
{
    REFUSE_NULL_OR(s, NULL);
    REFUSE_NULL_OR(name, NULL);

    const int *i = map_find(&s->index, name);

    return i ? &s->arrays.at[*i].array : NULL;
}

const char *manta_saved_note(const manta_saved *s, const char *name)
{
    REFUSE_NULL_OR(s, NULL);
    REFUSE_NULL_OR(name, NULL);

    for (size_t i = 0; i < s->notes.n; i++) {
        if (!strcmp(s->notes.at[i].name, name)) return s->notes.at[i].text;
    }
    return NULL;
}

/* ---- writing ---- */

manta_contents manta_saved_contents(const manta_saved *s)
{
    REFUSE_NULL_OR(s, (manta_contents){0});

    manta_contents c = {.model = s->model,
                        .n_arrays = (int)s->arrays.n,
                        .arrays = s->arrays.at,
                        .n_notes = (int)s->notes.n,
                        .notes = s->notes.at};

    if (!s->optimizer_error.code) c.optimizer = &s->optimizer;
    if (!s->losses_error.code) {
        c.n_losses = (int)s->losses.n;
        c.losses = s->losses.at;
    }
    if (!s->metrics_error.code) {
        c.n_metrics = (int)s->metrics.n;
        c.metrics = s->metrics.at;
    }
    return c;
}

const manta_array *contents_find(const manta_contents *c, const char *name)
{
    for (int i = 0; i < c->n_arrays; i++) {
        if (!strcmp(c->arrays[i].name, name)) return &c->arrays[i].array;
    }
    return NULL;
}
