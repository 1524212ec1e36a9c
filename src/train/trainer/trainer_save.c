/* trainer_save.c - checkpoints go to files behind the loop's back.
 *
 * A report with a checkpoint freezes what is to be saved: state and arrays are copied, a folder
 * is taken away by a rename. The report goes into the ring, marked as one whose files are on
 * their way, and a thread of the worker's brings them to disk, in the order of the reports, and
 * says so in the mark (trainer_shared.h). One is written and one waits; who reports a third
 * waits for the first.
 *
 *   .parts.D.A/temp-0.7/state.safetensors    written and synced by the thread
 *   .parts.D.A/round--4.rank-0               by one rename, when all of it is there
 *
 *   a save       free ── begin ──▶ filled ── send ──▶ queued ── written, or lost ──▶ free
 *                                     └──── drop ────────────────────────────────────▶ free
 *   its mark                                FILES_COMING ──▶ FILES_THERE or FILES_LOST
 *
 * Who writes what: a save that is filled is the loop's, one that is queued the thread's; the
 * oldest stays in the queue until it is written, so that a save is never both. `guard` is over
 * the queue, what is expected, and why saves were lost. The mark is the thread's from the
 * report on. The driver only reads it, and takes the report when it has changed.
 *
 * Why that is safe: the sum of the file is stored before the mark, with release; a rename comes
 * before both. A worker that dies leaves the mark at COMING: the driver counts the files as
 * lost when it has the end of the call.
 *
 * A save that is lost (a full disk) is told by the next report, which does nothing else then. A
 * loop that goes on in spite of that ends well if a later one is there.
 *
 * What may be changed: how many saves wait (WORKER_SAVES), each with a copy of its own. What
 * may not: writing two at a time, as the driver counts on the order of reports. */
#include <stdlib.h>
#include <string.h>

#include <manta/tensor.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "format/safetensors/safetensors.h"
#include "os/file.h"
#include "os/proc.h"
#include "os/thread.h"
#include "train/run/run_parts.h"
#include "train/session/session.h"
#include "train/trainer/trainer_worker.h"

enum { PLENTY = 8 }; /* a copy that nobody may want takes no more than this part of the memory there is */

/* ---- the thread ---- */

static manta_status make_room(worker_save *v, size_t n)
{
    if (n <= v->size) return MANTA_OK;
    mem_try_free(v->data);
    v->size = 0;
    if (!(v->data = mem_try_raw(n)))
        return manta_fail(MANTA_ENOMEM,
                          "a checkpoint is written from a copy, and there is no memory for %zu bytes", n);
    mem_touch(v->data, n);
    v->size = n;
    return MANTA_OK;
}

/* Under guard. Without memory for it, the save says so. */
static void make_expected(worker_saves *q)
{
    size_t n = q->expected;

    mutex_unlock(&q->guard);
    (void)!make_room(&q->all[0], n);
    mutex_lock(&q->guard);
    q->expected = 0;
    cond_broadcast(&q->changed);
}

/* A folder that no rename could bring here is copied. */
static manta_status bring_folder(const worker_save *v, const char *to)
{
    if (file_rename(v->folder, to)) {
        TRY(run_parts_move(v->folder, to));
        TRY(file_remove_tree(v->folder));
    }
    return file_sync_tree(to);
}

static manta_status write_notes(const manta_worker *w, const worker_save *v)
{
    char *path = run_part_notes(w->parts_folder, v->round, w->t.rank);
    manta_status st = v->notes.n ? file_replace(path, v->notes.at, v->notes.n) : MANTA_OK;

    mem_free(path);
    return st;
}

/* *sum: of the one file, where we write it. */
static manta_status write_files(const worker_save *v, const char *folder, file_sum *sum)
{
    switch (v->kind) {
    case SAVE_STATE: return checkpoint_write_state(v->s, v->data, &v->callbacks, folder, sum);
    case SAVE_ARRAYS: return checkpoint_write_arrays((int)v->arrays.n, v->arrays.at, folder, sum);
    case SAVE_FOLDER: return bring_folder(v, folder);
    case SAVE_NOTES: break;
    }
    return MANTA_OK;
}

/* Frees the room of what could not be written; the failure that is told stays. */
static void remove_rest(const char *folder)
{
    manta_error why;

    manta_error_get(&why);
    (void)!file_remove_tree(folder); /* or who sweeps does */
    (void)!manta_error_raise(&why);
}

static manta_status write_save(manta_worker *w, const worker_save *v, file_sum *sum)
{
    char *to, *folder = NULL;
    manta_status st;

    TRY(write_notes(w, v));
    if (v->kind == SAVE_NOTES) return MANTA_OK;
    TRY(manta_worker_temp_folder(w, &folder));
    to = run_part(w->parts_folder, v->round, w->t.rank);
    if (!(st = write_files(v, folder, sum))) st = file_rename(folder, to);
    if (st) remove_rest(folder);
    free(folder);
    mem_free(to);
    return st;
}

/* Gives back all but the room for copies. */
static void save_clear(worker_save *v)
{
    for (size_t i = 0; i < v->arrays.n; i++) mem_free((char *)(uintptr_t)v->arrays.at[i].name);
    vec_release(&v->arrays);
    blobs_release(&v->callbacks);
    buf_release(&v->notes);
    mem_free(v->folder);
    *v = (worker_save){.data = v->data, .size = v->size};
}

static void note_end(worker_saves *q, const manta_error *why) /* under guard */
{
    q->lost = *why;
    if (!why->code || q->untold.code) return;
    q->untold = *why;
    atomic_store(&q->failed, true);
}

static void write_all(void *arg)
{
    manta_worker *w = arg;
    worker_saves *q = &w->saves;

    thread_nice(10); /* the training comes first; but it may wait for this one in the end */
    mutex_lock(&q->guard);
    if (q->expected) make_expected(q);
    while (q->n || !q->leave) {
        worker_save *v = q->n ? q->queue[0] : NULL;
        manta_error why = {0};
        file_sum sum = {0};
        if (!v) {
            (void)cond_wait(&q->changed, &q->guard, CLOCK_NEVER);
            continue;
        }
        mutex_unlock(&q->guard);
        if (write_save(w, v, &sum)) manta_error_get(&why);
        v->files->sum = sum;
        atomic_store_explicit(&v->files->state, why.code ? FILES_LOST : FILES_THERE, memory_order_release);
        worker_wake_driver(w);
        mutex_lock(&q->guard);
        note_end(q, &why);
        save_clear(v);
        q->n--;
        memmove(q->queue, q->queue + 1, sizeof *q->queue * (size_t)q->n);
        cond_broadcast(&q->changed);
    }
    mutex_unlock(&q->guard);
}

/* ---- the queue, as the loop sees it ---- */

void worker_saves_init(manta_worker *w)
{
    mutex_init(&w->saves.guard);
    cond_init(&w->saves.changed);
}

static manta_status start_thread(manta_worker *w)
{
    if (!w->saves.started) TRY(thread_start(&w->saves.thread, "checkpoints", write_all, w));
    w->saves.started = true;
    return MANTA_OK;
}

void worker_saves_expect(manta_worker *w, const manta_session *s)
{
    worker_saves *q = &w->saves;

    if (w->t.rank || q->started || s->l.state_size > proc_available_memory() / PLENTY) return;
    q->expected = s->l.state_size;
    if (start_thread(w)) q->expected = 0; /* the save says why */
}

static void end_thread(worker_saves *q)
{
    if (!q->started) return;
    mutex_lock(&q->guard);
    q->leave = true;
    cond_broadcast(&q->changed);
    mutex_unlock(&q->guard);
    thread_join(&q->thread);
    q->started = q->leave = false;
}

void worker_saves_release(manta_worker *w)
{
    worker_saves *q = &w->saves;

    end_thread(q);
    for (int i = 0; i < WORKER_SAVES; i++) {
        save_clear(&q->all[i]);
        mem_try_free(q->all[i].data);
    }
    mutex_release(&q->guard);
    cond_release(&q->changed);
}

manta_status worker_saves_failure(manta_worker *w)
{
    worker_saves *q = &w->saves;
    manta_error why;

    if (!atomic_load_explicit(&q->failed, memory_order_relaxed)) return MANTA_OK;
    mutex_lock(&q->guard);
    why = q->untold;
    q->untold.code = MANTA_OK;
    atomic_store(&q->failed, false);
    mutex_unlock(&q->guard);
    return why.code ? manta_error_raise(&why) : MANTA_OK;
}

void worker_saves_await(manta_worker *w)
{
    worker_saves *q = &w->saves;

    mutex_lock(&q->guard);
    while (q->n) (void)cond_wait(&q->changed, &q->guard, CLOCK_NEVER);
    mutex_unlock(&q->guard);
}

manta_status worker_saves_end(manta_worker *w)
{
    worker_saves *q = &w->saves;

    end_thread(q);
    TRY(worker_saves_failure(w));
    return q->lost.code ? manta_error_raise(&q->lost) : MANTA_OK;
}

manta_status worker_save_begin(manta_worker *w, int64_t round, worker_save **out)
{
    worker_saves *q = &w->saves;
    worker_save *v = q->all;

    mutex_lock(&q->guard);
    while (q->n == WORKER_SAVES || q->expected) (void)cond_wait(&q->changed, &q->guard, CLOCK_NEVER);
    while (v->used) v++; /* the first that is free: there is room for as many copies as were needed at once */
    mutex_unlock(&q->guard);
    TRY(worker_saves_failure(w));
    TRY(run_part_make(w->parts_folder, NULL));
    TRY(start_thread(w));
    v->used = true;
    v->round = round;
    *out = v;
    return MANTA_OK;
}

void worker_save_drop(worker_save *v)
{
    save_clear(v);
}

manta_status worker_save_send(manta_worker *w, worker_save *v, const manta_metrics *m,
                              const trainer_report *head)
{
    worker_saves *q = &w->saves;
    manta_status st = worker_send(w, m, head, true, &v->files);

    if (!v->files) { /* it was not taken */
        save_clear(v);
        return st;
    }
    mutex_lock(&q->guard);
    q->queue[q->n++] = v;
    cond_broadcast(&q->changed);
    mutex_unlock(&q->guard);
    return st;
}

/* ---- what is saved ---- */

manta_status worker_save_state(worker_save *v, const manta_session *s, blobs *callbacks)
{
    TRY(make_room(v, s->l.state_size));
    memcpy(v->data, s->state, s->l.state_size);
    v->kind = SAVE_STATE;
    v->s = s;
    v->callbacks = *callbacks;
    *callbacks = (blobs){0};
    return MANTA_OK;
}

static size_t room_of(const manta_array *a)
{
    return (manta_array_bytes(a) + 63) & ~(size_t)63;
}

manta_status worker_save_arrays(worker_save *v, int n, const manta_column *arrays)
{
    size_t all = 0, at = 0;

    TRY(safetensors_check("a checkpoint's " CHECKPOINT_STATE, n, arrays));
    for (int i = 0; i < n; i++) {
        size_t size = room_of(&arrays[i].array);
        if (__builtin_add_overflow(all, size, &all))
            return manta_fail(MANTA_ENOMEM,
                              "a checkpoint of %d arrays has more bytes than there are addresses", n);
    }
    TRY(make_room(v, all ? all : 1));
    v->kind = SAVE_ARRAYS;
    for (int i = 0; i < n; i++) {
        const manta_array *from = &arrays[i].array;
        manta_array to = manta_array_of(from->dtype, from->ndim, from->shape, (char *)v->data + at);
        TRY(manta_array_copy(&to, from));
        vec_push(&v->arrays, ((manta_column){mem_strdup(arrays[i].name), to}));
        at += room_of(from);
    }
    return MANTA_OK;
}

manta_status worker_save_folder(manta_worker *w, worker_save *v, const char *folder)
{
    char *tag = mem_printf("%d.%lld", w->t.rank, (long long)atomic_fetch_add(&w->temps, 1));
    char *to = mem_printf("%s/given-%s", w->parts_folder, tag);
    file_info info;
    manta_status st = file_stat(folder, &info);

    if (!st && !info.is_folder)
        st = manta_fail(MANTA_EINVAL, "%s is a file, expected a folder of a checkpoint's files", folder);
    if (!st) st = checkpoint_check_folder(folder);
    v->kind = SAVE_FOLDER;
    if (!st && !file_rename(folder, to)) {
        v->folder = to;
        to = NULL;
    } else if (!st) {
        st = run_parts_aside(w->parts_folder, folder, tag, &v->folder);
    }
    mem_free(to);
    mem_free(tag);
    return st;
}
