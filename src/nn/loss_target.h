/* nn/loss_target.h - reading what predictions are compared with.
 *
 * Targets arrive in the dtype the data has: bytes, integers, floats. Whatever
 * cannot be a target is refused with its row, its value and what was expected,
 * because a wrong label is the commonest mistake in a data set and the most
 * expensive one to train on. */
#ifndef NN_LOSS_TARGET_H
#define NN_LOSS_TARGET_H

#include <manta/loss.h>

#include "nn/loss.h"

/* What a dense target's elements must be. */
typedef enum loss_range {
    LOSS_ANY, /* finite */
    LOSS_SHARE /* a number in [0, 1], with 1e-5 for rounding */
} loss_range;

/* Whether c's target has the dtype and the number of elements for one integer
 * per row (sparse) or one number per prediction. `what` is the loss's or
 * metric's name in the sentence. */
manta_status loss_target_fits(const manta_loss_call *c, const char *what, bool sparse);

/* The class of row `row`; MANTA_EINVAL or MANTA_ENAN when it is no integer in
 * [0, classes). The target fits. */
manta_status loss_target_class(const manta_loss_call *c, const char *what, int64_t row, int64_t *out);

/* Elements [first, first + n) of a dense target as floats. The target fits. */
manta_status loss_target_read(const manta_loss_call *c, const char *what, loss_range range, int64_t first,
                              int n, float *out);

#endif
