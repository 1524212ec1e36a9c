/* nn/loss.h - the built-in losses and metrics, resolved by name. */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include <manta/loss.h>

/* Options of the built-ins, in the form their functions take as `config`
 * (NULL there means Keras's defaults). Numbers as in manta/loss.h: 0 is the default, and
 * MANTA_ZERO is 0. */
typedef struct loss_config {
    bool from_logits;
    float label_smoothing, delta, threshold;
    int k;
} loss_config;

/* A loss or metric ready to call. `sparse`: the target is one integer per row.
 * Accepts Keras's function and class names ("mse", "MeanSquaredError", ...). */
typedef struct loss_fn {
    manta_loss_fn fn;
    const char *name; /* canonical, snake case; a program's own: as given */
    bool sparse;
    /* When the prediction is straight from a softmax (or sigmoid), the loss may be
     * computed from the logits behind it, with from_logits, as Keras on TensorFlow
     * does whatever from_logits said. */
    bool logits_of_softmax, logits_of_sigmoid;
} loss_fn;

typedef struct metric_fn {
    manta_metric_fn fn;
    const char *name; /* the name as shown: "accuracy" stays "accuracy", "acc" stays "acc" */
    bool sparse;
} metric_fn;

/* The loss that l describes, its options checked.
 * MANTA_ENOENT lists the names; MANTA_EINVAL an option that cannot be. */
manta_status loss_find(const manta_loss *l, loss_fn *out) MANTA_MUST_USE;

/* The metric that m describes, for an output whose loss is `loss` (NULL: none)
 * and whose last dimension is `classes`. "accuracy" and "acc" are binary with
 * one class, else sparse or categorical by the target's shape, as Keras
 * chooses. MANTA_EINVAL also when a built-in loss reads targets of another
 * form than the metric does. */
manta_status metric_find(const manta_metric *m, const loss_fn *loss, int64_t classes,
                         metric_fn *out) MANTA_MUST_USE;

/* Checks that the target array fits (rows, classes) for this loss: dtype, shape,
 * row-major. The message names `output`, what was expected and what was given.
 * Targets of a program's own loss are its own business. Reads no element. */
manta_status loss_check_target(const loss_fn *l, const char *output, int64_t rows, int64_t classes,
                               const manta_array *target) MANTA_MUST_USE;

#endif
