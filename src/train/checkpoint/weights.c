/* weights.c - a session's state in a file of any format (manta/file.h).
 *
 * Names: the variables as the model calls them ("conv2d/kernel"), then
 * "optimizer/ARRAY/VARIABLE" for what the optimizer keeps, and
 * "optimizer/iterations", "optimizer/learning_rate", "run/seed",
 * "run/position". A .npz has them as they are; other formats have places of
 * their own for them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <manta/file.h>

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "tensor/copy.h"
#include "format/safetensors/safetensors.h"
#include "train/checkpoint/checkpoint.h"
#include "train/storage/storage.h"

typedef VEC(manta_column) columns;

static void add_column(columns *c, char *name, manta_array a)
{
    vec_push(c, (manta_column){.name = name, .array = a});
}

/* Calls back for each optimizer array of each parameter: its name and memory. */
typedef manta_status (*array_fn)(void *ctx, char *name, manta_array a);

static manta_status each_array(const manta_session *s, const void *state, array_fn fn, void *ctx)
{
    const layout *l = &s->l;
    size_t section[5] = {0};
    const char *label[5];
    int n = 0;

    for (; n < l->arrays.n; n++) {
        section[n] = l->off_array[n];
        label[n] = l->arrays.name[n];
    }
    if (l->arrays.average) {
        section[n] = l->off_average;
        label[n++] = "average";
    }
    if (l->arrays.accumulator) {
        section[n] = l->off_accumulator;
        label[n++] = "accumulator";
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < l->n_params; j++) {
            const graph_variable *g = &s->m->variables[l->params[j].variable];
            float *at = (float *)((uintptr_t)state + section[i]) + l->params[j].offset;
            TRY(fn(ctx, mem_printf("optimizer/%s/%s", label[i], g->name),
                   manta_array_of(MANTA_DTYPE_F32, g->ndim, g->shape, at)));
        }
    }
    return MANTA_OK;
}

static manta_status save_array(void *ctx, char *name, manta_array a)
{
    add_column(ctx, name, a);
    return MANTA_OK;
}

static void add_scalar(columns *c, const char *name, manta_dtype t, const void *at)
{
    add_column(c, mem_strdup(name), manta_array_of(t, 0, NULL, (void *)(uintptr_t)at));
}

/* All that files of any format keep of a state. */
static void add_state(const manta_session *s, const void *state, columns *c)
{
    const run_state *run = layout_run(&s->l, state);

    for (int i = 0; i < s->m->n_variables; i++) {
        const graph_variable *g = &s->m->variables[i];
        add_column(c, mem_strdup(g->name),
                   manta_array_of(MANTA_DTYPE_F32, g->ndim, g->shape, layout_variable_at(&s->l, state, i)));
    }
    if (!s->n_losses) return;
    (void)each_array(s, state, save_array, c);
    add_scalar(c, "optimizer/iterations", MANTA_DTYPE_I64, &run->calls);
    add_scalar(c, "optimizer/learning_rate", MANTA_DTYPE_F64, &run->learning_rate);
    add_scalar(c, "run/seed", MANTA_DTYPE_I64, &run->seed);
    add_scalar(c, "run/position", MANTA_DTYPE_I64, &run->position);
}

static void release_columns(columns *c)
{
    for (size_t i = 0; i < c->n; i++) mem_free((char *)(uintptr_t)c->at[i].name);
    vec_release(c);
}

manta_status manta_session_save(const manta_session *s, const char *path)
{
    REFUSE_NULL(s);
    REFUSE_NULL(path);

    columns c = {0};
    manta_status st;

    TRY(session_pull(s));
    add_state(s, s->state, &c);
    st = manta_file_write(path, NULL,
                          &(manta_contents){.model = s->m,
                                            .optimizer = s->n_losses ? &s->opt : NULL,
                                            .n_losses = s->n_losses,
                                            .losses = s->losses,
                                            .n_metrics = s->n_metrics,
                                            .metrics = s->metrics,
                                            .n_arrays = (int)c.n,
                                            .arrays = c.at});
    release_columns(&c);
    return st;
}

/* ---- a checkpoint's: the place within the epoch too ---- */

static manta_status write_arrays(const char *folder, int n, const manta_column *arrays, int n_about,
                                 const safetensors_pair *about, file_sum *sum)
{
    char *path = mem_printf("%s/" CHECKPOINT_STATE, folder);
    file_writer *w = NULL;
    manta_status st;

    if ((st = storage_create(path, &w))) goto out;
    if ((st = safetensors_write_to(w, path, n, arrays, n_about, about))) goto out;
    *sum = file_writer_sum(w);
    st = file_writer_commit(w);
out:
    file_writer_free(w);
    mem_free(path);
    return st;
}

manta_status checkpoint_write_arrays(int n, const manta_column *arrays, const char *folder, file_sum *sum)
{
    return write_arrays(folder, n, arrays, 0, NULL, sum);
}

manta_status checkpoint_write_state(const manta_session *s, const void *state, const blobs *extra,
                                    const char *folder, file_sum *sum)
{
    const run_state *run = layout_run(&s->l, state);
    safetensors_pair about[] = {{"format", "manta"}, {"model", s->m->name}};
    int64_t n_sums = s->l.n_sums + 1;
    columns c = {0};
    manta_status st;

    add_state(s, state, &c);
    add_scalar(&c, "run/epoch", MANTA_DTYPE_I64, &run->epoch);
    add_scalar(&c, "run/step", MANTA_DTYPE_I64, &run->step);
    add_column(&c, mem_strdup("run/sums"),
               manta_array_of(MANTA_DTYPE_F64, 1, &n_sums, (void *)(uintptr_t)run->sums));
    for (size_t i = 0; i < extra->n; i++) {
        int64_t n = (int64_t)extra->at[i].data.n;
        add_column(&c, mem_strdup(extra->at[i].name),
                   manta_array_of(MANTA_DTYPE_U8, 1, &n, extra->at[i].data.at));
    }
    st = write_arrays(folder, (int)c.n, c.at, 2, about, sum);
    release_columns(&c);
    return st;
}

bool checkpoint_find_blob(const manta_saved *saved, const char *name, const void **data, size_t *n)
{
    const manta_array *a = manta_saved_find(saved, name);

    if (!a || a->dtype != MANTA_DTYPE_U8 || a->ndim != 1) return false;
    *data = a->data;
    *n = (size_t)a->shape[0];
    return true;
}

/* ---- loading ---- */

static bool same_shape(const manta_array *a, const manta_array *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

/* Checks every variable before any is changed: a file that does not fit
 * changes nothing. */
static manta_status check_variables(const manta_session *s, const char *path, const manta_saved *file)
{
    for (int i = 0; i < s->m->n_variables; i++) {
        const graph_variable *g = &s->m->variables[i];
        const manta_array *a = manta_saved_find(file, g->name);
        manta_array want = manta_array_of(MANTA_DTYPE_F32, g->ndim, g->shape, NULL);
        char given[96], expected[96];
        if (!a) {
            return manta_fail(MANTA_ENOENT, "%s has no array '%s', which model '%s' needs", path, g->name,
                              s->m->name);
        }
        if (!same_shape(a, &want)) {
            return manta_fail(MANTA_EINVAL, "%s: array '%s' has shape %s, model '%s' expects %s", path,
                              g->name, manta_shape_text(a->ndim, a->shape, given, sizeof given), s->m->name,
                              manta_shape_text(want.ndim, want.shape, expected, sizeof expected));
        }
    }
    return MANTA_OK;
}

typedef struct loading {
    manta_session *s;
    const manta_saved *file;
    bool missing, check;
} loading;

static manta_status load_array(void *ctx, char *name, manta_array a)
{
    loading *l = ctx;
    const manta_array *from = manta_saved_find(l->file, name);
    manta_status st = MANTA_OK;

    if (!from || !same_shape(from, &a)) {
        l->missing = true;
    } else if (!l->check) {
        st = copy_strided(l->s->pool, &a, from, false);
    }
    mem_free(name);
    return st;
}

static void load_scalar(const manta_saved *file, const char *name, manta_dtype t, void *out)
{
    const manta_array *a = manta_saved_find(file, name);

    if (a && a->dtype == t && a->ndim == 0) memcpy(out, a->data, manta_dtype_size(t));
}

static manta_status load_optimizer(manta_session *s, const char *path, const manta_saved *file)
{
    loading l = {.s = s, .file = file, .check = true};
    run_state *run = layout_run(&s->l, s->state);
    const manta_array *calls = manta_saved_find(file, "optimizer/iterations");
    int64_t seed = (int64_t)run->seed;

    if (!s->n_losses || !calls) return MANTA_OK;
    TRY(each_array(s, s->state, load_array, &l));
    if (l.missing) {
        log_warn("the optimizer state is for another optimizer: it starts fresh", LOG_STR("file", path));
        return MANTA_OK;
    }
    l.check = false;
    TRY(each_array(s, s->state, load_array, &l));
    load_scalar(file, "optimizer/iterations", MANTA_DTYPE_I64, &run->calls);
    load_scalar(file, "optimizer/learning_rate", MANTA_DTYPE_F64, &run->learning_rate);
    load_scalar(file, "run/position", MANTA_DTYPE_I64, &run->position);
    load_scalar(file, "run/seed", MANTA_DTYPE_I64, &seed);
    run->seed = (uint64_t)seed;
    return MANTA_OK;
}

static manta_status restore_weights(manta_session *s, const char *path, const manta_saved *file,
                                    bool weights_only)
{
    TRY(check_variables(s, path, file));
    TRY(session_pull(s));
    for (int i = 0; i < s->m->n_variables; i++) {
        const graph_variable *g = &s->m->variables[i];
        manta_array a =
            manta_array_of(MANTA_DTYPE_F32, g->ndim, g->shape, layout_variable_at(&s->l, s->state, i));
        TRY(copy_strided(s->pool, &a, manta_saved_find(file, g->name), false));
    }
    s->torn = false;
    s->touched = true;
    session_changed(s);
    s->phase = SESSION_IDLE;
    return weights_only ? MANTA_OK : load_optimizer(s, path, file);
}

manta_status manta_session_restore(manta_session *s, const manta_saved *saved, bool weights_only)
{
    REFUSE_NULL(s);
    REFUSE_NULL(saved);
    return restore_weights(s, "the file", saved, weights_only);
}

manta_status manta_session_load(manta_session *s, const char *path, bool weights_only)
{
    REFUSE_NULL(s);
    REFUSE_NULL(path);

    manta_saved *file = NULL;
    manta_status st;

    TRY(manta_file_read(path, &(manta_read_options){.like = s->m}, &file));
    st = restore_weights(s, path, file, weights_only);
    manta_saved_free(file);
    return st;
}

/* Sums of the epoch's metrics so far; of another recipe they are none of ours. */
static void load_place(manta_session *s, const manta_saved *file)
{
    run_state *run = layout_run(&s->l, s->state);
    const manta_array *sums = manta_saved_find(file, "run/sums");

    load_scalar(file, "run/epoch", MANTA_DTYPE_I64, &run->epoch);
    load_scalar(file, "run/step", MANTA_DTYPE_I64, &run->step);
    if (sums && sums->dtype == MANTA_DTYPE_F64 && sums->ndim == 1 && sums->shape[0] == s->l.n_sums + 1)
        memcpy(run->sums, sums->data, ((size_t)s->l.n_sums + 1) * sizeof(double));
}

manta_status checkpoint_restore(manta_session *s, const manta_checkpoint *c, const manta_saved *saved,
                                bool weights_only)
{
    TRY(restore_weights(s, manta_checkpoint_path(c), saved, weights_only));
    if (!weights_only && s->n_losses) load_place(s, saved);
    return MANTA_OK;
}

manta_status manta_session_from_checkpoint(manta_session *s, const manta_checkpoint *c, bool weights_only)
{
    REFUSE_NULL(s);
    REFUSE_NULL(c);

    manta_saved *saved = NULL;
    manta_status st;

    TRY(manta_checkpoint_arrays(c, &saved));
    st = checkpoint_restore(s, c, saved, weights_only);
    manta_saved_free(saved);
    return st;
}
