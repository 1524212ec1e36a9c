/* nn/device_update.h - the update of a state on a device: apply.c's norms, parameters and statistics. */
#ifndef NN_DEVICE_UPDATE_H
#define NN_DEVICE_UPDATE_H

#include "nn/apply.h"
#include "tensor/device.h"

typedef struct device_update {
    const layout *l;
    device *d;
    int shards;
    dev_addr slots, params; /* dev_slots; dev_param[]: written for each step */
    dev_addr param_lines, stat_lines; /* what belongs to which parameter, what is renewed */
    dev_addr segments, norms; /* made when norms are first wanted */
    int n_segments;
    dev_param *staged; /* on the host */
    dev_slots *staged_slots;
    dev_program *step, *find_norms;
} device_update;

/* For a layout and at most so many shards. device_update_release() also after a failure. */
manta_status device_update_init(device_update *u, const layout *l, device *d, int shards) MANTA_MUST_USE;
void device_update_release(device_update *u); /* accepts zeroed memory */

/* Updates the state at `state` in place from n slots; `a` has begun the step on the host. */
manta_status device_update_step(device_update *u, apply *a, dev_addr state, int n,
                                const dev_addr *slots) MANTA_MUST_USE;

#endif
