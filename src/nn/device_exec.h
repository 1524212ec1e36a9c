/* nn/device_exec.h - runs a model on a device: what exec.h and apply.h are on the processor.
 *
 * The state, the slots of the shards and the activations lie on the device, each
 * laid out as on the host: a state that is copied back is a state. The run section
 * (counters, the rate, sums) is the host's: the device's copy of it is not kept up.
 *
 *   host      inputs, labels, {seed, step, first}, numbers of the update
 *                |                                                 ^ a slot's sums
 *                v                                                 |
 *   device    block -- forward, losses, backward --> slots -- update --> state
 *
 * What has no kernel is refused by name in device_exec_new(), before anything is
 * allocated. Programs are made when they are first wanted, for (mode, batch, shard).
 *
 * Threads: one call at a time. */
#ifndef NN_DEVICE_EXEC_H
#define NN_DEVICE_EXEC_H

#include "nn/apply.h"
#include "nn/exec.h"
#include "tensor/device.h"
#include "tensor/device_mma.h"

typedef struct device_exec device_exec; /* opaque, see device_exec.c */

/* What of a step is to be done. */
enum {
    DEVICE_FORWARD = 1,
    DEVICE_OBJECTIVE = 2, /* losses and metrics: the slot's sums */
    DEVICE_BACKWARD = 4
};

/* All are borrowed. precision: DEV_FLOAT32 and DEV_BFLOAT16 multiply on tensor cores (tensor/device_mma.h). shards: how many slots there are; 0: predictions only. The state is zeros until
 * device_exec_put_state(). MANTA_EUNSUPPORTED, MANTA_ENOMEM. */
manta_status device_exec_new(const manta_model *m, const layout *l, const objective *o, device *d,
                             dev_precision precision, pool *p, int shards, device_exec **out) MANTA_MUST_USE;
void device_exec_free(device_exec *e); /* accepts NULL */

/* Makes the plan of (mode, batch) and grows memory to hold it. */
manta_status device_exec_prepare(device_exec *e, plan_mode mode, int64_t batch) MANTA_MUST_USE;

/* Between the device's state and one of the host's; from the device all comes but the run section. */
/* Plays the kernels of the last shard and of the last update again, so many times, with the numbers that they had, and
 * waits: what a step takes the device by itself. The state is of no use afterwards. How many kernels that were. */
manta_status device_exec_replay(device_exec *e, int64_t times, int *kernels_of_step) MANTA_MUST_USE;

manta_status device_exec_put_state(device_exec *e, const void *state) MANTA_MUST_USE;
manta_status device_exec_get_state(device_exec *e, void *state) MANTA_MUST_USE;

/* Parts of a step of a shard, as exec_forward() and exec_backward(); `state` and `slot` of r are not
 * looked at. It returns before they are done. With DEVICE_BACKWARD alone the forward pass of the same r
 * must have been the last. */
manta_status device_exec_run(device_exec *e, const exec_run *r, int shard, unsigned parts) MANTA_MUST_USE;

/* The slot of a shard: its sums, or all of it, into a slot of the host's. Waits. */
manta_status device_exec_get_sums(device_exec *e, int shard, void *slot) MANTA_MUST_USE;
manta_status device_exec_get_slot(device_exec *e, int shard, void *slot) MANTA_MUST_USE;

/* The update of all parameters and statistics in place, from the slots of these shards. `a` has begun the
 * step on the host: its numbers are taken; norms and penalty come back to it when it needs them. */
manta_status device_exec_update(device_exec *e, apply *a, int n_shards, const int *shards) MANTA_MUST_USE;

/* Output i of the last forward pass, copied to the host: borrowed until the next call. Waits. */
manta_status device_exec_output(device_exec *e, int i, manta_array *out) MANTA_MUST_USE;

#endif
