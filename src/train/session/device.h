/* train/session/device.h - a session whose steps a device computes, in this process.
 *
 *   host      s->state: a mirror of the device's state; its run section is the one that counts
 *                |   ^
 *         push() |   | session_pull()       one of the two is up to date, or both are
 *                v   |
 *   device    state, slots, activations     steps, evaluations and predictions compute here
 *
 * Whoever reads parameters, statistics or the optimizer's arrays of s->state calls session_pull() before;
 * whoever changes them, session_changed() after (and session_pull() before, unless it writes all of them).
 * Without a device both do nothing. */
#ifndef TRAIN_SESSION_DEVICE_H
#define TRAIN_SESSION_DEVICE_H

#include "train/session/session.h"

/* Chooses and opens what o->device says: "cpu" (NULL) leaves s->on NULL. Nothing is allocated on a device when
 * the model, its objective or the options are not for one. After objective_init(). MANTA_EUNSUPPORTED,
 * MANTA_EINVAL. */
manta_status session_device_choose(manta_session *s, const manta_session_options *o) MANTA_MUST_USE;
/* Memory and plans on the device; part of session_local(). */
manta_status session_device_local(manta_session *s) MANTA_MUST_USE;
void session_device_after_fork(manta_session *s); /* part of session_after_fork(): nothing computes there */
void session_device_close(manta_session *s); /* accepts a session without one */
const char *session_device_precision(const manta_session *s); /* "exact", "float32", "mixed_bfloat16" */
/* "NVIDIA H200, float32 (products in tf32)". */
void session_device_about(const manta_session *s, char *text, size_t size);

/* What step.c does on the processor. */
manta_status session_device_prepare(manta_session *s, plan_mode mode, int64_t rows) MANTA_MUST_USE;
/* All shards of a batch, into the device's slots; the sums come to the host's, after backward all of them: the host
 * goes on by itself with gradients that are looked at, changed or applied. parts: DEVICE_FORWARD, ... */
manta_status session_device_shards(manta_session *s, const manta_feed *f, plan_mode mode,
                                   unsigned parts) MANTA_MUST_USE;
/* The slots of the last batch come to the host's, as after backward. */
manta_status session_device_slots(const manta_session *s) MANTA_MUST_USE;
manta_status session_device_step(manta_session *s, const manta_feed *f) MANTA_MUST_USE;
/* device_exec_replay() */
manta_status session_device_replay(manta_session *s, int64_t times, int *kernels_of_step) MANTA_MUST_USE;
manta_status session_device_forward(manta_session *s, const exec_run *r) MANTA_MUST_USE;
manta_status session_device_output(manta_session *s, int i, manta_array *out) MANTA_MUST_USE;

#endif
