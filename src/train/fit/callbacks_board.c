/* callbacks_board.c - the callback that writes event files for TensorBoard, with Keras's tags.
 *
 *   FOLDER/train         epoch_NAME, epoch_learning_rate, batch_NAME, WEIGHT/histogram, the graph
 *   FOLDER/validation    epoch_NAME, evaluation_NAME_vs_iterations
 *
 * Steps of batch_ and of _vs_iterations count calls of the optimizer, all others epochs.
 *
 * A run that goes on from a checkpoint opens a file of its own, of which TensorBoard forgets
 * all points from that epoch on; what of them happened before the checkpoint is written
 * there once more (board_go_on()). So every point is shown once. */
#include <stdio.h>
#include <string.h>

#include <manta/events.h>

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "format/tensorboard/events.h"
#include "train/fit/fit_context.h"

typedef struct board {
    manta_tensorboard_options o;
    char *folder;
    manta_events *train, *validation;
    bool goes_on; /* from a checkpoint */
    int64_t first, iterations; /* the checkpoint's: its epoch, and the optimizer's calls behind it */
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
