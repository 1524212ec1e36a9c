/* trainer_save.c - a session's state goes to a file behind the loop's back.
 *
 * The loop waits for the copy in memory alone, and for a copy that is still being
 * written: one is at a time. The driver leaves the report in the ring until the
 * files are where it says (`saved` of the rank). A failure is told by the next
 * report with a checkpoint, or at the end of the loop. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "os/thread.h"
#include "train/session.h"
#include "train/trainer_worker.h"

static void write_state(void *arg)
{
    manta_worker *w = arg;
    worker_save *v = &w->save;
    trainer_rank *own = &w->mem.c->ranks[w->t.rank];
    file_sum sum;
    manta_status st = checkpoint_write_state(v->s, v->state, &v->callbacks, v->folder, &sum);

    if (!st) st = worker_hand_over(w, v->folder, v->round);
    if (st) manta_error_get(&v->why);
    atomic_store(st ? &own->lost : &own->saved, (uint64_t)-v->round);
    worker_wake_driver(w);
}

manta_status worker_save_wait(manta_worker *w)
{
    worker_save *v = &w->save;
    manta_error why;

    if (v->writes) thread_join(&v->thread);
    v->writes = false;
    why = v->why;
    blobs_release(&v->callbacks);
    free(v->folder);
    v->folder = NULL;
    v->why.code = MANTA_OK;
    return why.code ? manta_error_raise(&why) : MANTA_OK;
}

void worker_save_release(manta_worker *w)
{
    mem_try_free(w->save.state);
    w->save.state = NULL;
}

manta_status worker_save_start(manta_worker *w, const manta_session *s, blobs *callbacks, int64_t round)
{
    worker_save *v = &w->save;

    if (s->l.state_size > v->size) {
        mem_try_free(v->state);
        v->size = 0;
        if (!(v->state = mem_try_raw(s->l.state_size)))
            return manta_fail(MANTA_ENOMEM, "a copy of the state for a checkpoint (%zu bytes)",
                              s->l.state_size);
        v->size = s->l.state_size;
    }
    TRY(manta_worker_temp_folder(w, &v->folder));
    memcpy(v->state, s->state, s->l.state_size);
    v->s = s;
    v->round = round;
    v->callbacks = *callbacks;
    *callbacks = (blobs){0};
    TRY(thread_start(&v->thread, "checkpoints", write_state, w));
    v->writes = true;
    return MANTA_OK;
}
