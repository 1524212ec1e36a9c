/* nn/device_feed.h - the samples of a step on their way to a device: checked and converted on the host. */
#ifndef NN_DEVICE_FEED_H
#define NN_DEVICE_FEED_H

#include "nn/exec.h"
#include "tensor/device.h"

typedef struct device_feed {
    const manta_model *m;
    const objective *o;
    device *d;
    pool *pool;
    int64_t batch; /* for so many samples there is room */
    dev_addr memory; /* of targets and weights */
    size_t size;
    dev_addr *target, *weight_at, *weight; /* per head; weight: of the step at hand, 0 when none was given */
    uint64_t weighted; /* which heads were given weights */
    void *staged; /* on the host */
    size_t staged_size;
} device_feed;

void device_feed_init(device_feed *f, const manta_model *m, const objective *o, device *d, pool *p);
void device_feed_release(device_feed *f);

/* Makes room for the targets of so many samples. *moved: addresses have changed. */
manta_status device_feed_grow(device_feed *f, int64_t batch, bool *moved) MANTA_MUST_USE;

/* Puts input i of a step, in the model's type, to `to`. */
manta_status device_feed_input(device_feed *f, int i, const exec_run *r, dev_addr to) MANTA_MUST_USE;

/* Puts targets, as labels or floats, and weights of all heads. MANTA_EINVAL, MANTA_ENAN: a target that cannot
 * be, as the loss itself would say. */
manta_status device_feed_targets(device_feed *f, const exec_run *r) MANTA_MUST_USE;

#endif
