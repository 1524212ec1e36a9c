/* train/ps/ps_config_check.h - what all processes of a training with parameter servers must
 * have in common (cluster/agreement.h), compared when they meet.
 *
 * Each process says its settings in the hello of every channel and refuses a
 * process that has others, with a sentence that names the first that differs. Of two the
 * coordinator is right, else the one that is called: so both say the same sentence.
 * A coordinator that comes back with other options is turned away by those
 * who remember what they began with, and they go on waiting for the right one.
 *
 * Threads: a check is used by the thread that works on the channels. */
#ifndef TRAIN_PS_PS_CONFIG_CHECK_H
#define TRAIN_PS_PS_CONFIG_CHECK_H

#include "train/cluster/agreement.h"
#include "train/ps/ps.h"

typedef struct ps_config_check {
    char node[FRAME_NAME]; /* who we are */
    agreement mine;
    int servers; /* the number of the coordinator, as a node */
    int self; /* ours */
    bool differs[PS_SERVERS + 1 + PS_WORKERS]; /* by node: it was refused */
    bool at_work; /* the last that was has begun a training */
    bool refused; /* one was: the coordinator or, by the coordinator, any */
    manta_error why; /* the first was refused with this sentence */
} ps_config_check;

/* The settings of the process with number `self`, called `node`. Of processes that are no children
 * of ours the data is compared, too. */
manta_status ps_config_check_init(ps_config_check *t, const ps_plan *p, int self,
                                  const char *node) MANTA_MUST_USE;

/* Compares with what node i of a rendezvous says; `ctx` is the check. */
manta_status ps_config_check_hello(void *ctx, int i, const hello *theirs) MANTA_MUST_USE;

#endif
