/* callbacks_files.c - callbacks that write files: CSV, TensorBoard, models. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/events.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/vec.h"
#include "format/tensorboard/events.h"
#include "os/file.h"
#include "os/sys.h"
#include "train/fit/fit_context.h"
#include "train/fit/monitor.h"

/* ---- CSV ---- */

/* The file only grows; how far it had grown is part of the state, so a run
 * that is taken up first cuts off what it will write again. */
typedef struct csv {
    char *path;
    char separator;
    bool append;
    int fd;
    int64_t size; /* bytes of this run's file so far */
    bool told; /* size is a checkpoint's */
    char **keys; /* the columns after "epoch"; owned */
    int n_keys;
} csv;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static manta_status csv_write(csv *c, const buf *line)
{
    for (size_t done = 0; done < line->n;) {
        ssize_t n = os->write(c->fd, line->at + done, line->n - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_fail(errno, "writing", c->path);
        done += (size_t)n;
    }
    c->size += (int64_t)line->n;
    return MANTA_OK;
}

static manta_status csv_open(void *self, manta_fit_context *f)
{
    csv *c = self;
    bool goes_on = f->resumed && c->told;
    struct stat info;

    if (c->fd >= 0) os->close(c->fd);
    do c->fd = os->open(c->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    while (c->fd < 0 && errno == EINTR);
    if (c->fd < 0) return file_fail(errno, "opening", c->path);
    if (os->fstat(c->fd, &info)) return file_fail(errno, "looking at", c->path);
    if (!goes_on) c->size = c->append ? info.st_size : 0;
    if (c->size > info.st_size) c->size = info.st_size; /* what is lost is not made up for with zeros */
    if (c->size < info.st_size && os->ftruncate(c->fd, c->size)) return file_fail(errno, "cutting", c->path);
    c->told = false;
    return MANTA_OK;
}

static void csv_forget_keys(csv *c)
{
    for (int i = 0; i < c->n_keys; i++) mem_free(c->keys[i]);
    mem_free(c->keys);
    c->keys = NULL;
    c->n_keys = 0;
}

static void csv_learn_keys(csv *c, const manta_metrics *logs)
{
    c->keys = mem_new((size_t)(logs->n + 1) * sizeof *c->keys);
    for (; c->n_keys < logs->n; c->n_keys++) c->keys[c->n_keys] = mem_strdup(logs->name[c->n_keys]);
    if (c->n_keys) qsort(c->keys, (size_t)c->n_keys, sizeof *c->keys, by_text);
}

static manta_status csv_epoch(void *self, manta_fit_context *f)
{
    csv *c = self;
    buf line = {0};
    manta_status st;

    if (!c->keys) {
        csv_learn_keys(c, f->logs);
        if (!c->size) {
            buf_add_text(&line, "epoch");
            for (int i = 0; i < c->n_keys; i++) buf_printf(&line, "%c%s", c->separator, c->keys[i]);
            buf_add_text(&line, "\n");
        }
    }
    buf_printf(&line, "%" PRId64, f->epoch);
    for (int i = 0; i < c->n_keys; i++) {
        bool there = false;
        for (int k = 0; k < f->logs->n; k++) there |= !strcmp(f->logs->name[k], c->keys[i]);
        if (there) {
            buf_printf(&line, "%c%.17g", c->separator, manta_metrics_get(f->logs, c->keys[i]));
        } else {
            buf_printf(&line, "%cNA", c->separator);
        }
    }
    buf_add_text(&line, "\n");
    st = csv_write(c, &line);
    buf_release(&line);
    return st;
}

static manta_status csv_end(void *self, manta_fit_context *f)
{
    csv *c = self;

    (void)f;
    if (c->fd >= 0) os->close(c->fd);
    c->fd = -1;
    c->size = 0;
    csv_forget_keys(c);
    return MANTA_OK;
}

static void csv_save(void *self, void *out)
{
    const csv *c = self;

    manta_blob_put(out, &c->size, sizeof c->size);
}

static manta_status csv_load(void *self, const void *data, size_t n)
{
    csv *c = self;

    if (n != sizeof c->size)
        return manta_fail(MANTA_ECORRUPT, "the checkpoint's state of csv_logger has %zu bytes, expected %zu",
                          n, sizeof c->size);
    memcpy(&c->size, data, n);
    c->told = true;
    return c->size >= 0
               ? MANTA_OK
               : manta_fail(
                     MANTA_ECORRUPT,
                     "the checkpoint's state of csv_logger says %lld bytes of its file, expected 0 or more",
                     (long long)c->size);
}

static void csv_free(void *self)
{
    csv *c = self;

    if (c->fd >= 0) os->close(c->fd);
    csv_forget_keys(c);
    mem_free(c->path);
    mem_free(c);
}

static const manta_callback_ops csv_ops = {.name = "csv_logger",
                                           .train_begin = csv_open,
                                           .epoch_end = csv_epoch,
                                           .train_end = csv_end,
                                           .save = csv_save,
                                           .load = csv_load,
                                           .free = csv_free};

manta_callback *manta_csv_logger(const char *path, const manta_csv_logger_options *o)
{
    REFUSE_NULL_OR(path, NULL);

    csv *c = mem_new(sizeof *c);

    c->path = mem_strdup(path);
    c->separator = o && o->separator ? o->separator : ',';
    c->append = o && o->append;
    c->fd = -1;
    return manta_callback_new(&csv_ops, c);
}

/* ---- TensorBoard ---- */

typedef struct board {
    manta_tensorboard_options o;
    char *folder;
    manta_events *train, *validation;
    bool goes_on; /* from a checkpoint, which stands before epoch `first` is done, */
    int64_t first, iterations; /* with so many calls of the optimizer behind it */
} board;

/* How many points of a tag that counts iterations stay when the run goes on. What was
 * evaluated belongs to an epoch, and has a twin that counts epochs. */
static int64_t board_stays(const board *b, const manta_events_log *l, const manta_events_tag *t)
{
    static const char head[] = "evaluation_", tail[] = "_vs_iterations";
    size_t n = strlen(t->name), around = strlen(head) + strlen(tail);
    int64_t stays = 0;
    char twin[96];

    if (t->kind != MANTA_EVENTS_SCALAR) return 0;
    if (!strncmp(t->name, "batch_", 6)) {
        while (stays < t->count && t->points[stays].step <= b->iterations) stays++;
        return stays;
    }
    if (n <= around || strncmp(t->name, head, strlen(head)) || strcmp(t->name + n - strlen(tail), tail) != 0)
        return 0;
    snprintf(twin, sizeof twin, "epoch_%.*s", (int)(n - around), t->name + strlen(head));
    for (int i = 0; i < manta_events_tags(l); i++) {
        manta_events_tag of_epochs = manta_events_tag_at(l, i);
        if (strcmp(of_epochs.name, twin) != 0) continue;
        for (int64_t k = 0; k < of_epochs.count; k++) stays += of_epochs.points[k].step < b->first;
    }
    return stays < t->count ? stays : t->count;
}

/* Of a run that goes on, readers forget all points from a step on. Some tags count
 * epochs and some iterations, but there is one step for all of them: it is the epoch,
 * and those of the others that stay are written again. */
static manta_status board_go_on(const board *b, const char *path, manta_events **out)
{
    manta_events_options o = {.first_step = b->first, .restart = true, .suffix = ".v2"};
    VEC(events_kept) kept = {0};
    manta_events_log *l = NULL;
    manta_status st = manta_events_read(path, &l);

    if (st && st != MANTA_ENOENT)
        log_warn("what was there before is not shown", LOG_STR("why", manta_error_text()));
    for (int i = 0; !st && i < manta_events_tags(l); i++) {
        manta_events_tag t = manta_events_tag_at(l, i);
        int64_t stays = board_stays(b, l, &t);
        for (int64_t k = 0; k < stays; k++) {
            if (t.points[k].step >= b->first) vec_push(&kept, ((events_kept){t.name, t.points[k]}));
        }
    }
    st = events_open_keeping(path, &o, kept.n, kept.at, out);
    vec_release(&kept);
    manta_events_log_free(l);
    return st;
}

static manta_status board_open(const board *b, const char *part, manta_events **out)
{
    char *path = mem_printf("%s/%s", b->folder, part);
    manta_status st = b->goes_on ? board_go_on(b, path, out)
                                 : manta_events_open(path, &(manta_events_options){.suffix = ".v2"}, out);

    mem_free(path);
    return st;
}

static manta_status board_begin(void *self, manta_fit_context *f)
{
    board *b = self;

    manta_events_close(b->train);
    manta_events_close(b->validation);
    b->train = b->validation = NULL;
    b->goes_on = f->resumed;
    b->first = f->first.epoch;
    b->iterations = manta_session_iterations(f->s);
    TRY(board_open(b, "train", &b->train));
    return b->o.no_graph ? MANTA_OK : manta_events_graph(b->train, manta_session_model(f->s));
}

static manta_status board_batch(void *self, manta_fit_context *f)
{
    board *b = self;
    int64_t calls = manta_session_iterations(f->s);
    char tag[80];

    if (!b->o.update_freq || calls % b->o.update_freq) return MANTA_OK;
    for (int i = 0; i < f->logs->n; i++) {
        snprintf(tag, sizeof tag, "batch_%s", f->logs->name[i]);
        TRY(manta_events_scalar(b->train, tag, calls, f->logs->value[i]));
    }
    return MANTA_OK;
}

static manta_status board_histograms(board *b, manta_fit_context *f)
{
    const manta_model *m = manta_session_model(f->s);

    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_variable_info v = manta_model_variable(m, i);
        manta_array a;
        char tag[300];
        TRY(manta_session_weight(f->s, v.name, &a));
        snprintf(tag, sizeof tag, "%.256s/histogram", v.name);
        TRY(manta_events_histogram(b->train, tag, f->epoch, &a));
    }
    return MANTA_OK;
}

static manta_status board_epoch(void *self, manta_fit_context *f)
{
    board *b = self;
    char tag[80];

    for (int i = 0; i < f->logs->n; i++) {
        bool of_validation = !strncmp(f->logs->name[i], "val_", 4);
        if (of_validation && !b->validation) TRY(board_open(b, "validation", &b->validation));
        snprintf(tag, sizeof tag, "epoch_%s", f->logs->name[i] + (of_validation ? 4 : 0));
        TRY(manta_events_scalar(of_validation ? b->validation : b->train, tag, f->epoch, f->logs->value[i]));
        if (!of_validation) continue;
        snprintf(tag, sizeof tag, "evaluation_%s_vs_iterations", f->logs->name[i] + 4);
        TRY(manta_events_scalar(b->validation, tag, manta_session_iterations(f->s), f->logs->value[i]));
    }
    TRY(manta_events_scalar(b->train, "epoch_learning_rate", f->epoch, manta_session_learning_rate(f->s)));
    return b->o.histogram_freq && f->epoch % b->o.histogram_freq == 0 ? board_histograms(b, f) : MANTA_OK;
}

static manta_status board_end(void *self, manta_fit_context *f)
{
    board *b = self;
    manta_status st = manta_events_flush(b->train);

    (void)f;
    if (!st && b->validation) st = manta_events_flush(b->validation);
    manta_events_close(b->train);
    manta_events_close(b->validation);
    b->train = b->validation = NULL;
    return st;
}

static void board_free(void *self)
{
    board *b = self;

    manta_events_close(b->train);
    manta_events_close(b->validation);
    mem_free(b->folder);
    mem_free(b);
}

static bool board_needs_batches(void *self)
{
    return ((board *)self)->o.update_freq > 0;
}

static const manta_callback_ops board_ops = {.name = "tensorboard",
                                             .train_begin = board_begin,
                                             .train_batch_end = board_batch,
                                             .epoch_end = board_epoch,
                                             .train_end = board_end,
                                             .needs_batches = board_needs_batches,
                                             .free = board_free};

manta_callback *manta_tensorboard(const char *log_dir, const manta_tensorboard_options *o)
{
    REFUSE_NULL_OR(log_dir, NULL);

    board *b = mem_new(sizeof *b);

    if (o) b->o = *o;
    b->folder = mem_strdup(log_dir);
    return manta_callback_new(&board_ops, b);
}

/* ---- the model ---- */

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
