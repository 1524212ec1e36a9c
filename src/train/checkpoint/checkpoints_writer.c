/* checkpoints_writer.c - the thread that writes the checkpoints of a session, and the
 * buffers that it writes from.
 *
 * save() copies the state into a buffer of its own, at the speed of memory,
 * and returns. One thread writes: `writing` is in its hands, `pending` is the
 * next. Two buffers go round, made once.
 *
 *   save() ── spare ──copy──▶ pending ──▶ writing ──▶ disk
 *               ▲                │ passed by a newer one │
 *               └────────────────┴───────────────────────┘
 *
 * A save that must be written neither takes the place of the one in `pending` nor
 * loses its own there: whoever comes next waits. Any other gives way to the next. */
#include <string.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/checkpoint/checkpoints_part.h"

struct checkpoints_request {
    const manta_session *s;
    void *state; /* one of the buffers */
    size_t size;
    manifest m; /* info */
    blobs extra;
    bool must;
};

static void request_free(checkpoints_request *r)
{
    if (!r) return;
    manifest_release(&r->m);
    blobs_release(&r->extra);
    mem_free(r);
}

static manta_status fill_with_state(const void *ctx, const char *temp, manifest *made)
{
    const checkpoints_request *r = ctx;
    file_sum sum = {0};

    TRY(checkpoint_write_state(r->s, r->state, &r->extra, temp, &sum));
    manifest_add(made, CHECKPOINT_STATE, sum);
    return MANTA_OK;
}

static void note_failure(manta_checkpoints *m, const char *path)
{
    const char *colon;
    manta_error e;

    manta_error_get(&e);
    /* Said once, until one can be written again; the whole sentence is the run's own, at its end. What stands
     * before the first colon is where it was written, which `path` says. */
    colon = strstr(e.text, ": ");
    if (!m->failing++)
        log_warn("a checkpoint could not be written", LOG_STR("path", path),
                 LOG_STR("why", colon ? colon + 2 : e.text));
    mutex_lock(&m->guard);
    if (!m->failure.code) m->failure = e;
    mutex_unlock(&m->guard);
}

static void note_success(manta_checkpoints *m)
{
    if (m->failing)
        log_warn("checkpoints can be written again", LOG_STR("path", m->folder), LOG_INT("lost", m->failing));
    m->failing = 0;
}

static void give_back(manta_checkpoints *m, void *state, size_t size) /* under guard */
{
    int i = m->spare[0] ? 1 : 0;

    if (m->spare[i]) {
        mem_try_free(state);
        return;
    }
    m->spare[i] = state;
    m->spare_size[i] = size;
}

/* Under guard. Without memory for it, who saves says so. */
static void make_expected(manta_checkpoints *m)
{
    size_t size = m->expected;
    void *at;

    mutex_unlock(&m->guard);
    if ((at = mem_try_raw(size))) mem_touch(at, size);
    mutex_lock(&m->guard);
    if (at) give_back(m, at, size);
    m->expected = 0;
    cond_broadcast(&m->changed);
}

static void write_all(void *arg)
{
    manta_checkpoints *m = arg;

    thread_nice(19); /* the training comes first */
    mutex_lock(&m->guard);
    if (m->expected) make_expected(m);
    for (;;) {
        checkpoints_request *r = m->pending;
        if (!r && m->leave) break;
        if (!r) {
            (void)cond_wait(&m->changed, &m->guard, CLOCK_NEVER);
            continue;
        }
        m->writing = r;
        m->pending = NULL;
        cond_broadcast(&m->changed);
        mutex_unlock(&m->guard);
        if (checkpoints_make(m, &r->m, fill_with_state, r)) {
            note_failure(m, m->folder);
        } else {
            note_success(m);
        }
        mutex_lock(&m->guard);
        give_back(m, r->state, r->size);
        request_free(r);
        m->writing = NULL;
        cond_broadcast(&m->changed);
    }
    mutex_unlock(&m->guard);
}

void checkpoints_await(manta_checkpoints *m)
{
    mutex_lock(&m->guard);
    while (m->pending || m->writing) (void)cond_wait(&m->changed, &m->guard, CLOCK_NEVER);
    mutex_unlock(&m->guard);
}

/* ---- saving ---- */

static manta_status start_thread(manta_checkpoints *m)
{
    if (!m->started) TRY(thread_start(&m->thread, "checkpoints", write_all, m));
    m->started = true;
    return MANTA_OK;
}

void checkpoints_expect(manta_checkpoints *m, const manta_session *s)
{
    if (m->started) return;
    m->expected = s->l.state_size;
    if (start_thread(m)) m->expected = 0; /* who saves says why */
}

/* A buffer for a state of `size`; NULL when memory is gone. Under guard. */
static void *take_buffer(manta_checkpoints *m, size_t size)
{
    while (m->expected) (void)cond_wait(&m->changed, &m->guard, CLOCK_NEVER);
    for (int i = 0; i < 2; i++) {
        void *at = m->spare[i];
        if (!at) continue;
        m->spare[i] = NULL;
        if (m->spare_size[i] == size) return at;
        mem_try_free(at);
    }
    return mem_try_raw(size);
}

/* Makes the place of the one that waits free. Under guard. */
static void make_room(manta_checkpoints *m, bool must)
{
    while (m->pending && (m->pending->must || must)) (void)cond_wait(&m->changed, &m->guard, CLOCK_NEVER);
    if (!m->pending) return;
    give_back(m, m->pending->state, m->pending->size);
    request_free(m->pending);
    m->pending = NULL;
}

manta_status checkpoints_save(manta_checkpoints *m, const manta_session *s, const manta_checkpoint_info *info,
                              blobs *extra, bool must)
{
    checkpoints_request *r;
    manta_status st;

    TRY(session_pull(s));
    r = mem_new(sizeof *r);
    r->extra = *extra;
    *extra = (blobs){0};
    r->s = s;
    r->size = s->l.state_size;
    r->must = must;
    mutex_lock(&m->guard);
    make_room(m, must);
    r->state = take_buffer(m, r->size);
    mutex_unlock(&m->guard);
    if (!r->state) {
        request_free(r);
        return manta_fail(MANTA_ENOMEM,
                          "a checkpoint is written from a copy, and there is no memory for %zu bytes",
                          s->l.state_size);
    }
    memcpy(r->state, s->state, r->size);
    manifest_init(&r->m, info);
    r->m.info.sequence = ++m->last;
    if ((st = start_thread(m))) {
        mem_try_free(r->state);
        request_free(r);
        return st;
    }
    mutex_lock(&m->guard);
    m->pending = r;
    cond_broadcast(&m->changed);
    mutex_unlock(&m->guard);
    return MANTA_OK;
}

manta_status manta_checkpoints_save(manta_checkpoints *m, const manta_session *s,
                                    const manta_checkpoint_info *info, bool must)
{
    REFUSE_NULL(m);
    REFUSE_NULL(s);

    manta_checkpoint_info here = {0};
    const run_state *run = layout_run(&s->l, s->state);
    blobs none = {0};

    if (!info) {
        here.epoch = run->epoch;
        here.step = run->step;
        here.iterations = run->calls;
        info = &here;
    }
    return checkpoints_save(m, s, info, &none, must);
}

manta_status manta_checkpoints_failure(manta_checkpoints *m)
{
    REFUSE_NULL(m);

    manta_error e;

    mutex_lock(&m->guard);
    e = m->failure;
    m->failure.code = MANTA_OK;
    mutex_unlock(&m->guard);
    return e.code ? manta_error_raise(&e) : MANTA_OK;
}

manta_status manta_checkpoints_wait(manta_checkpoints *m)
{
    REFUSE_NULL(m);

    checkpoints_await(m);
    return manta_checkpoints_failure(m);
}
