/* train/ps/ps_config_check.h - what all processes of a training with parameter servers must
 * have in common: model, seed, optimizer, rate, losses, batch, steps.
 *
 * Each process says its settings in the hello of every channel and refuses a
 * process that has others, with a sentence that names the first that differs.
 * So a coordinator that comes back with other options is turned away by those
 * who remember what they began with, and they go on waiting for the right one.
 *
 *   one setting a line, in a fixed order:   seed \t 7 \n
 *
 * Threads: a check is used by the thread that works on the channels. */
#ifndef TRAIN_PS_PS_CONFIG_CHECK_H
#define TRAIN_PS_PS_CONFIG_CHECK_H

#include "train/ps/ps.h"

typedef struct ps_config_check {
    char node[FRAME_NAME]; /* who we are */
    char text[FRAME_WORD];
    size_t n; /* bytes of text */
    bool refused; /* a coordinator was, */
    manta_error why; /* with this sentence */
} ps_config_check;

/* The settings of a process that is called `node`. */
void ps_config_check_init(ps_config_check *t, const ps_plan *p, const char *node);

/* Compares with the settings of `who`, of which anything may be in `theirs`.
 * MANTA_EPERM: the first that differs. */
manta_status ps_config_check_compare(const ps_config_check *t, const char *who, const void *theirs,
                                     size_t n) MANTA_MUST_USE;

/* Compares with what node i of a rendezvous says; `ctx` is the check. */
manta_status ps_config_check_hello(void *ctx, int i, const hello *theirs) MANTA_MUST_USE;

#endif
