/* trainer_step.c - steps of a model by all ranks of a trainer.
 *
 * A rank's batch is one shard of a step that has as many shards as there are ranks. So
 * the step is that of a worker group (session/step_core.h, session/shared.h), and its
 * result is, to the bit, that of one process with as many shards:
 *
 *   each rank    forward and backward of its batch, from its view of the committed
 *                buffer into its slot                                        meeting
 *   each rank    with norms: the square sums of its range of the blocks      meeting
 *   each rank    its range of the other buffer: slots added by the shard tree, divided,
 *                applied, in one pass; the first rank also the run section   meeting
 *   each rank    takes the other buffer for its state
 *
 * The memory is made by the first rank at the first step of a model; the others open it
 * through /proc. Who writes what: a slot its rank; a range of the buffer that is not
 * committed the rank that has the range; the committed buffer nobody. There is no
 * recovery within a step: when a rank is lost all end, and begin again from a
 * checkpoint.
 *
 * A rank sees the buffers through a mapping whose writes are its own (shm_map_copy()).
 * What a loop writes into its session between steps (a learning rate, weights, metrics
 * set to zero) therefore disturbs no other rank; the next step starts from it, range by
 * range from the view of the rank that has the range. All ranks are to write the same,
 * as they always were. After the step the old view is forgotten.
 *
 * A model is this rank's own until its first step, and from then on all ranks': it never goes
 * back. What may be changed: how the blocks are divided, which is step_range_of()'s and no part
 * of the result, and who makes the memory. What may not: to write to the committed buffer, or to
 * take the other one before the last meeting of the step. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/mem.h"
#include "os/file.h"
#include "os/shm.h"
#include "os/sys.h"
#include "train/session/feed.h"
#include "train/session/step_core.h"
#include "train/trainer/trainer_worker.h"

/* ---- a model ---- */

static void *view_of(const worker_model *m, int buffer)
{
    return m->view + m->memory->off_buffers + (size_t)buffer * m->memory->buffer_stride;
}

void worker_model_free(void *model)
{
    worker_model *m = model;

    worker_saves_await(m->w); /* a checkpoint that is being written reads the session */
    if (m->view) {
        m->s->state = NULL;
        shm_unmap(m->view, m->memory->size);
    }
    shared_free(m->memory);
    mem_free(m);
}

manta_status manta_prepare_model(manta_worker *w, const manta_model *m, const manta_compile *c,
                                 const manta_session_options *o, manta_session **out)
{
    REFUSE_NULL(w);
    REFUSE_NULL(m);
    REFUSE_NULL(c);
    REFUSE_NULL(out);

    manta_session_options so = o ? *o : (manta_session_options){.seed = w->t.seed};
    worker_model *made;
    manta_session *s;
    manta_status st = MANTA_OK;

    so.workers = so.shards = 1;
    so.no_fusion = true; /* gradients must come to memory to be added up */
    if (!so.threads) so.threads = w->t.threads;
    if (so.device && !strcmp(so.device, "auto")) so.device = NULL;
    if (so.device && *so.device && strcmp(so.device, "cpu")) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "device '%.40s': the steps of a trainer's ranks are computed on the processor, expected "
            "cpu or auto",
            so.device);
    }
    TRY(manta_session_open(m, c, &so, &s));
    if (w->checkpoint) {
        st = manta_session_from_checkpoint(s, w->checkpoint, false);
        w->restored = !st;
        if (st == MANTA_ENOENT) st = MANTA_OK; /* a checkpoint of the loop's own files */
    }
    if (st) {
        manta_session_close(s);
        return st;
    }
    made = mem_new(sizeof *made);
    *made = (worker_model){.w = w, .s = s};
    s->engine = (engine){.ops = &engine_ranks, .ctx = made};
    s->a.first_stats = so.statistics == MANTA_STATISTICS_FIRST;
    s->used = mem_resize((void *)s->used, (size_t)w->t.world * sizeof *s->used);
    worker_saves_expect(w, s);
    *out = s;
    return MANTA_OK;
}

/* ---- memory ---- */

static manta_status make_memory(worker_model *m)
{
    manta_session *s = m->s;

    TRY(shared_new(&s->l, s->a.n_segments, 0, 1, m->w->t.world, apply_needs_norms(&s->a), &m->memory));
    memcpy(shared_buffer(m->memory, 0), s->state, s->l.state_size);
    return MANTA_OK;
}

static manta_status join_memory(worker_model *m, int pid, int theirs)
{
    manta_session *s = m->s;
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, theirs);
    do fd = os->open(path, O_RDWR | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return file_fail(errno, "opening the model's memory of another rank", path);
    return shared_join(&s->l, s->a.n_segments, 0, m->w->t.world, fd, &m->memory);
}

/* The session's state lies in the view from now on. */
static manta_status move_in(worker_model *m)
{
    void *at;

    TRY(shm_map_copy(m->memory->fd, m->memory->size, &at));
    m->view = at;
    mem_try_free(m->s->state);
    m->s->state = view_of(m, 0);
    return MANTA_OK;
}

/* The first rank that is here makes the memory, with the state that all have. */
static manta_status share_model(worker_model *m)
{
    manta_worker *w = m->w;
    manta_status st = MANTA_OK;
    const slot_head *chief;
    slot_head *own;
    int first = 0;

    TRY(worker_slot(w, &own));
    TRY(worker_meet(w));
    while (!worker_slot_of(w, first)) first++; /* this rank is here */
    TRY(worker_slot(w, &own));
    if (first == w->t.rank) st = make_memory(m);
    own->numbers[0] = (double)getpid();
    own->numbers[1] = m->memory ? m->memory->fd : -1;
    TRY(worker_meet(w));
    chief = worker_slot_of(w, first);
    if (st) return st;
    if (!chief || chief->numbers[1] < 0)
        return manta_fail(MANTA_EDIED, "rank %d has found no memory for the model", first);
    if (first != w->t.rank) TRY(join_memory(m, (int)chief->numbers[0], (int)chief->numbers[1]));
    return move_in(m);
}

/* ---- a step ---- */

static manta_status compute_shard(worker_model *m, const manta_feed *f)
{
    manta_session *s = m->s;
    exec_run r;

    TRY(session_check_feed(s, f, true));
    TRY(session_local(s));
    s->phase = SESSION_IDLE;
    r = session_run(s, PLAN_TRAIN, f, shared_slot(m->memory, m->w->t.rank));
    TRY(exec_forward(s->e, &r));
    return exec_backward(s->e, &r);
}

/* Who is here, and what they bring: the slots with samples, in the order of ranks. */
typedef struct turnout {
    int ranks, own; /* how many, and which of them is this one */
    int64_t count; /* samples of all */
} turnout;

static turnout count_all(worker_model *m)
{
    manta_worker *w = m->w;
    manta_session *s = m->s;
    turnout t = {0};

    s->n_used = 0;
    for (int rank = 0; rank < w->t.world; rank++) {
        const slot_head *h = worker_slot_of(w, rank);
        if (!h) continue;
        if (rank == w->t.rank) t.own = t.ranks;
        t.ranks++;
        t.count += (int64_t)h->count;
        if (h->count > 0) s->used[s->n_used++] = shared_slot(m->memory, rank);
    }
    return t;
}

/* This rank's part of the update. */
static manta_status update_range(worker_model *m, const turnout *t)
{
    manta_session *s = m->s;
    step_range r = step_range_of(&s->l, t->own, t->ranks);
    double *norms = s->a.norms;
    manta_status st = MANTA_OK;

    s->a.norms = shared_norms(m->memory);
    step_begin(s, shared_buffer(m->memory, !m->buffer));
    if (apply_needs_norms(&s->a)) {
        step_norms(s, &r);
        st = worker_meet(m->w);
    }
    if (!st) {
        step_params(s, &r);
        step_stats(s, &r);
        if (!t->own) step_finish(s, t->count);
    }
    s->a.norms = norms;
    return st;
}

static void take_other_buffer(worker_model *m)
{
    manta_session *s = m->s;

    shm_forget(view_of(m, m->buffer), m->memory->buffer_stride);
    m->buffer = !m->buffer;
    s->state = view_of(m, m->buffer);
    s->phase = SESSION_IDLE;
    s->evaluated = false;
    s->touched = true;
}

manta_status manta_worker_train_step(manta_worker *w, manta_session *s, const manta_feed *f)
{
    REFUSE_NULL(w);
    REFUSE_NULL(s);
    REFUSE_NULL(f);

    worker_model *m = s->engine.ctx;
    bool samples = f && f->count > 0;
    slot_head *own;
    turnout t;

    TRY(worker_is_over(w));
    if (s->engine.ops != &engine_ranks)
        return manta_fail(MANTA_EINVAL, "a step of all ranks needs a session of manta_prepare_model()");
    if (!m->memory) TRY(share_model(m));
    if (samples) TRY(compute_shard(m, f));
    TRY(worker_slot(w, &own));
    own->count = samples ? (double)f->count : 0;
    TRY(worker_meet(w));
    t = count_all(m);
    if (!s->n_used) return MANTA_OK;
    TRY(update_range(m, &t));
    TRY(worker_meet(w));
    take_other_buffer(m);
    return MANTA_OK;
}

/* ---- epochs and metrics ---- */

/* After steps of all ranks the sums are everybody's in each of them. */
manta_status manta_worker_metrics(manta_worker *w, const manta_session *s, manta_metrics *m)
{
    REFUSE_NULL(w);
    REFUSE_NULL(s);
    REFUSE_NULL(m);

    const worker_model *model = s->engine.ops == &engine_ranks ? s->engine.ctx : NULL;
    bool common = !s->evaluated && model && model->memory;
    double sums[TRAINER_NUMBERS];
    int n = s->l.n_sums + 1;

    if (n > TRAINER_NUMBERS)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "a session with %d sums of metrics, expected up to %d to add up over the ranks", n,
                          TRAINER_NUMBERS);
    memcpy(sums, s->evaluated ? s->eval_sums : session_sums(s), (size_t)n * sizeof *sums);
    TRY(worker_combine(w, sums, n, common));
    memset(m, 0, sizeof *m);
    session_metrics_of(s, sums, "", m);
    return MANTA_OK;
}

manta_status manta_worker_evaluate(manta_worker *w, manta_session *s, manta_dataset *d,
                                   const manta_fit_options *o, manta_metrics *m)
{
    REFUSE_NULL(w);
    REFUSE_NULL(s);

    if (d && manta_dataset_count(d) != 0) {
        TRY(manta_evaluate(s, d, o, NULL));
    } else {
        engine_reset_sums(s);
        s->evaluated = true;
    }
    return manta_worker_metrics(w, s, m);
}

int64_t worker_first(const manta_worker *w, manta_loader *l)
{
    int64_t sizes[FEED_SIZES], most = 1;
    int n = manta_loader_batch_sizes(l, sizes, FEED_SIZES);

    for (int i = 0; i < n && i < FEED_SIZES; i++) most = sizes[i] > most ? sizes[i] : most;
    return most * w->t.rank;
}

manta_status manta_worker_train_epoch(manta_worker *w, manta_session *s, manta_loader *l, int64_t epoch,
                                      manta_metrics *m)
{
    REFUSE_NULL(w);
    REFUSE_NULL(s);
    REFUSE_NULL(l);

    const manta_column_spec *columns;
    int n_columns = manta_loader_columns(l, &columns);
    int64_t first = epoch == manta_worker_epoch(w) ? manta_worker_step(w) : 0;
    double steps = (double)manta_loader_steps(l);
    feed_map map;

    TRY(feed_map_init(&map, manta_session_model(s), true, n_columns, columns));
    TRY(worker_combine(w, &steps, 1, true));
    if (steps < 0)
        return manta_fail(
            MANTA_EINVAL,
            "the loader does not know how many steps an epoch has: call manta_worker_train_step() for each");
    TRY(manta_loader_seek(l, epoch, first < manta_loader_steps(l) ? first : manta_loader_steps(l)));
    manta_session_reset_metrics(s);
    for (int64_t step = first; step < (int64_t)steps; step++) {
        manta_feed f = {0};
        manta_batch b;
        if (step < manta_loader_steps(l)) {
            if (manta_loader_next(l, &b)) {
                f = feed_of(&map, &b);
            } else {
                TRY(manta_loader_status(l));
            }
        }
        f.first = worker_first(w, l);
        TRY(manta_worker_train_step(w, s, &f));
    }
    return m ? manta_worker_metrics(w, s, m) : MANTA_OK;
}
