/* run.h - a program as it runs: what its slots hold, and what may have gone wrong so far.
 *
 * The first thing that is not as the model says ends the process with status 1 and a
 * sentence in the shared page. Calls that hold cores (SOAK_HOLD) are let go before the
 * program waits for anything that needs a core: what it waits for must come. */
#ifndef SOAK_RUN_H
#define SOAK_RUN_H

#include "program.h"

#include <manta/stream.h>
#include "remote.h"

typedef enum soak_holds { SOAK_EMPTY, SOAK_VALUES, SOAK_ACTORS, SOAK_ITEMS } soak_holds;

typedef struct soak_slot {
    soak_holds holds;
    int n;
    manta_ref *refs; /* values: n references, and what each must be */
    soak_expect *expect;
    manta_actor *actors;
    soak_expect actor; /* what every call of the actors depends on */
    int64_t *calls; /* how many each actor must have had */
    int parallel;
    bool is_counted; /* `calls` is exact */
    bool named, is_ended;
    bool is_streaming; /* one of the actors is busy until its stream is read */
    bool has_others; /* calls of others may be on their way to the actors */
    manta_stream stream;
    int stream_of; /* slot of the actor that yields; 0: a task */
    soak_expect items;
    soak_work work;
    int taken;
} soak_slot;

typedef struct soak_run {
    const soak_program *program;
    soak_slot slots[SOAK_SLOTS];
    int cores, tokens, actor_cores, used_actor_cores;
    bool inside, small_store, few_files;
    int kills; /* of workers */
    int ends; /* of processes by other means: groups that are removed, cancels by force, actors that are killed */
    uint64_t actor_slots;
    uint64_t doomed; /* slots whose actors were killed */
    uint64_t ended; /* whose actors were told to end */
    uint64_t cancelled;
    manta_ref *holds;
    int n_holds, round;
} soak_run;

/* Ends the process: `what` is wrong with the operation that runs. */
_Noreturn void soak_wrong(const char *format, ...) MANTA_PRINTF(1, 2);

/* run.c */
soak_slot *soak_slot_of(soak_run *r, const soak_op *op, int i, soak_holds holds); /* NULL: another, or none */
soak_slot *soak_slot_fill(soak_run *r, const soak_op *op, soak_holds holds, int n);
void soak_slot_clear(soak_slot *s);
void soak_let_go(soak_run *r); /* of cores that are held */
/* Whether a failure is one that may be; anything else is wrong. */
void soak_check_failure(const soak_run *r, const soak_expect *e, manta_status st, const char *what);
/* Waits for a reference and compares; false: the time was over. */
bool soak_check(soak_run *r, manta_ref ref, const soak_expect *e, int64_t timeout_ms);
void soak_program_run(const soak_program *p, const char *folder); /* ends the process */

/* run_calls.c: arguments of call i of an operation, and the work that it is */
typedef struct soak_call {
    soak_work work;
    soak_expect expect;
    void *bytes;
    manta_arg args[SOAK_ARGS + 2];
    int n_args;
} soak_call;

void soak_call_make(soak_run *r, const soak_op *op, int i, int first_arg, soak_call *out);
manta_task_options soak_call_options(const soak_run *r, const soak_op *op);
void soak_do_put(soak_run *r, const soak_op *op);
void soak_do_call(soak_run *r, const soak_op *op);
void soak_do_get(soak_run *r, const soak_op *op);
void soak_do_wait(soak_run *r, const soak_op *op);
void soak_do_drop(soak_run *r, const soak_op *op);
void soak_do_cancel(soak_run *r, const soak_op *op);
void soak_do_hold(soak_run *r, const soak_op *op);
void soak_do_free(soak_run *r, const soak_op *op);
/* run_actors.c */
void soak_do_actor(soak_run *r, const soak_op *op);
void soak_do_ready(soak_run *r, const soak_op *op);
void soak_do_method(soak_run *r, const soak_op *op);
void soak_do_count(soak_run *r, const soak_op *op);
void soak_do_via(soak_run *r, const soak_op *op);
void soak_do_find(soak_run *r, const soak_op *op);
void soak_do_end(soak_run *r, const soak_op *op);
void soak_do_kill_actor(soak_run *r, const soak_op *op);
void soak_do_leave(soak_run *r, const soak_op *op);
/* run_others.c */
void soak_do_kill(soak_run *r, const soak_op *op);
void soak_do_zygote(soak_run *r, const soak_op *op);
void soak_do_stream(soak_run *r, const soak_op *op);
void soak_do_next(soak_run *r, const soak_op *op);
void soak_do_close(soak_run *r, const soak_op *op);
void soak_do_queue(soak_run *r, const soak_op *op);
void soak_do_map(soak_run *r, const soak_op *op);
void soak_do_group(soak_run *r, const soak_op *op);
void soak_do_threads(soak_run *r, const soak_op *op);

#endif
