/* callbacks_model.c - the callback that saves the model, Keras's ModelCheckpoint.
 *
 * It saves after every epoch, or after every so many batches; with save_best_only when the
 * watched metric is better than at the last save. The path may ask for numbers, as in
 * "m-{epoch:02d}-{val_loss:.2f}.keras": fill_in() knows {epoch}, {batch} and the metrics,
 * with a width or a number of decimals, and refuses everything else by name.
 *
 * What a checkpoint of the run keeps of it is keeper_memory, so that a run which is taken up
 * still knows the best value. These files are no checkpoints: a run goes on from those of
 * callbacks_checkpoint.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/option.h"
#include "os/file.h"
#include "train/fit/fit_context.h"
#include "train/fit/monitor.h"

typedef struct keeper_memory {
    int64_t since; /* batches seen since the last save */
    double best;
    int64_t has_best; /* no bool: it comes from a file, where anything may be */
} keeper_memory;

typedef struct keeper {
    manta_model_checkpoint_options o;
    char *path;
    monitor m;
    keeper_memory at;
} keeper;

/* A plain format of ours for a number: digits, a point, a width; no more. */
static bool is_format(const char *text, size_t n, char kind)
{
    if (n > 8) return false;
    for (size_t i = 0; i + 1 < n; i++) {
        if ((text[i] < '0' || text[i] > '9') && text[i] != '.') return false;
    }
    return n > 0 && (text[n - 1] == kind || (kind == 'f' && (text[n - 1] == 'e' || text[n - 1] == 'g')));
}

/* A width or a number of decimals: what is beyond reason is cut. */
static int small_number(const char *text)
{
    long n = strtol(text, NULL, 10);

    return n < 0 ? 0 : n > 40 ? 40 : (int)n;
}

static manta_status add_number(buf *out, const char *name, size_t n, const char *format, size_t n_format,
                               manta_fit_context *f)
{
    char key[64], how[16];
    bool whole = (n == 5 && !strncmp(name, "epoch", 5)) || (n == 5 && !strncmp(name, "batch", 5));
    double value = (double)NAN;
    int64_t number = *name == 'e' ? f->epoch + 1 : f->batch + 1;

    snprintf(key, sizeof key, "%.*s", (int)n, name);
    if (!whole) value = manta_metrics_get(f->logs, key);
    if (!whole && isnan(value)) {
        bool there = false;
        for (int i = 0; i < f->logs->n; i++) there |= !strcmp(f->logs->name[i], key);
        if (!there)
            return manta_fail(MANTA_EINVAL, "the path asks for {%s}, and there is no such metric", key);
    }
    if (n_format && !is_format(format, n_format, whole ? 'd' : 'f')) {
        return manta_fail(MANTA_EINVAL, "the path asks for {%s:%.*s}, expected such as %s", key,
                          (int)n_format, format, whole ? "02d" : ".2f");
    }
    if (whole) {
        int width = n_format > 1 ? small_number(format) : 0;
        buf_printf(out, "%0*" PRId64, width, number);
        return MANTA_OK;
    }
    if (!n_format) {
        buf_printf(out, "%g", value);
        return MANTA_OK;
    }
    int decimals = 6;
    const char *point = memchr(format, '.', n_format);
    if (point) decimals = small_number(point + 1);
    snprintf(how, sizeof how, "%c", format[n_format - 1]);
    if (*how == 'e') {
        buf_printf(out, "%.*e", decimals, value);
    } else if (*how == 'g') {
        buf_printf(out, "%.*g", decimals, value);
    } else {
        buf_printf(out, "%.*f", decimals, value);
    }
    return MANTA_OK;
}

/* The path with {epoch:02d} and the like filled in. */
static manta_status fill_in(const char *path, manta_fit_context *f, buf *out)
{
    while (*path) {
        const char *end = *path == '{' ? strchr(path, '}') : NULL, *colon;
        if (!end) {
            buf_add_char(out, *path++);
            continue;
        }
        colon = memchr(path, ':', (size_t)(end - path));
        TRY(add_number(out, path + 1, (size_t)((colon ? colon : end) - path - 1), colon ? colon + 1 : NULL,
                       colon ? (size_t)(end - colon - 1) : 0, f));
        path = end + 1;
    }
    return MANTA_OK;
}

/* Makes the folder of a file, as Keras does. */
static manta_status make_folder_of(const char *path)
{
    char *folder = file_above(path);
    manta_status st = file_mkdirs(folder);

    mem_free(folder);
    return st;
}

/* What would go wrong with the first save, as far as it shows before the training. */
static manta_status keeper_before(void *self, manta_fit_context *f)
{
    const keeper *c = self;
    const char *slash = strrchr(c->path, '/');
    size_t n = strlen(c->path);
    manta_file_format format;
    bool known = false;

    (void)f;
    TRY(monitor_check(&c->m));
    for (int i = 0; manta_file_format_at(i, &format); i++) {
        const char *const endings[] = {format.ending, format.also};
        for (int k = 0; k < 2 && format.writes; k++) {
            size_t m = endings[k] ? strlen(endings[k]) : 0;
            known |= m && n > m && !strcmp(c->path + n - m, endings[k]);
        }
    }
    if (!known)
        return manta_fail(MANTA_EINVAL, "%s: its ending names no format that models are written in", c->path);
    if (slash && memchr(c->path, '{', (size_t)(slash - c->path)))
        return MANTA_OK; /* known when it is saved */
    return make_folder_of(c->path);
}

static manta_status keeper_save_model(keeper *c, manta_fit_context *f)
{
    buf path = {0};
    double value = 0;
    manta_status st;

    c->at.since = 0;
    if (c->o.save_best_only) {
        bool better;
        if (!monitor_value(&c->m, f, "model_checkpoint", &value)) return MANTA_OK;
        better = !c->at.has_best ? !isnan(value) : c->m.greater ? value > c->at.best : value < c->at.best;
        if (!better) return MANTA_OK;
    }
    if (!(st = fill_in(c->path, f, &path)) && !(st = make_folder_of(buf_text(&path))))
        st = manta_session_save(f->s, buf_text(&path));
    buf_release(&path);
    if (!st && c->o.save_best_only) {
        c->at.best = value;
        c->at.has_best = true;
    }
    return st;
}

static manta_status keeper_batch(void *self, manta_fit_context *f)
{
    keeper *c = self;

    if (!c->o.every_steps || ++c->at.since < c->o.every_steps) return MANTA_OK;
    return keeper_save_model(c, f);
}

static manta_status keeper_epoch(void *self, manta_fit_context *f)
{
    keeper *c = self;

    return c->o.every_steps ? MANTA_OK : keeper_save_model(c, f);
}

static void keeper_save(void *self, void *out)
{
    const keeper *c = self;

    manta_blob_put(out, &c->at, sizeof c->at);
}

static manta_status keeper_load(void *self, const void *data, size_t n)
{
    keeper *c = self;

    if (n != sizeof c->at)
        return manta_fail(MANTA_ECORRUPT,
                          "the checkpoint's state of model_checkpoint has %zu bytes, expected %zu", n,
                          sizeof c->at);
    memcpy(&c->at, data, n);
    return MANTA_OK;
}

static void keeper_free(void *self)
{
    keeper *c = self;

    monitor_release(&c->m);
    mem_free(c->path);
    mem_free(c);
}

static bool keeper_needs_batches(void *self)
{
    return ((keeper *)self)->o.every_steps > 0;
}

static const manta_callback_ops keeper_ops = {.name = "model_checkpoint",
                                              .before_fit = keeper_before,
                                              .train_batch_end = keeper_batch,
                                              .epoch_end = keeper_epoch,
                                              .needs_batches = keeper_needs_batches,
                                              .save = keeper_save,
                                              .load = keeper_load,
                                              .free = keeper_free};

manta_callback *manta_model_checkpoint(const char *path, const manta_model_checkpoint_options *o)
{
    REFUSE_NULL_OR(path, NULL);

    keeper *c = mem_new(sizeof *c);

    if (o) c->o = *o;
    c->path = mem_strdup(path);
    monitor_init(&c->m, c->o.monitor, c->o.mode);
    c->at.has_best = c->o.threshold != 0;
    c->at.best = option_real(c->o.threshold, 0);
    return manta_callback_new(&keeper_ops, c);
}
