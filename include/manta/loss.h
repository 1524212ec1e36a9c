/* manta/loss.h - losses and metrics, built in and a program's own.
 *
 * Predictions arrive as rows: an output of shape (batch, ..., classes) is
 * rows = batch * ... rows of `classes` numbers (a loss that compares element
 * by element, such as MSE, averages over the last axis, as Keras does). A loss
 * gives one number per row and the gradient of their weighted *sum*; the
 * division by the count happens once, in the update. A metric gives a sum and
 * a count; its value is their quotient. */
#ifndef MANTA_LOSS_H
#define MANTA_LOSS_H

#include <manta/array.h>
#include <manta/option.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one call of a loss or metric is given. Arrays are row-major. On failure
 * `loss` and `grad` hold anything; the sentence names the row, the value and
 * what was expected. A NaN among the predictions must come out again. */
typedef struct manta_loss_call {
    const void *config; /* the manta_loss's or manta_metric's `config` */
    int64_t rows, classes;
    const float *pred; /* (rows, classes) */
    manta_array target; /* (rows) of integers for the sparse ones, or (rows, classes) or (rows) */
    const float *weight; /* (rows) or NULL for 1 */
    float scale; /* the gradient is multiplied by it */
    float *loss; /* (rows): written, without weight and scale */
    float *grad; /* (rows, classes), apart from pred: written with weight and scale; NULL: not wanted */
} manta_loss_call;

typedef manta_status (*manta_loss_fn)(const manta_loss_call *c);

typedef enum manta_reduction {
    MANTA_REDUCTION_SUM_OVER_BATCH_SIZE = 0, /* divide by the number of rows, Keras's default */
    MANTA_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT, /* divide by the sum of weights */
    MANTA_REDUCTION_SUM /* do not divide */
} manta_reduction;

/* A loss: a built-in by Keras's name, or a function. */
typedef struct manta_loss {
    const char *name; /* "sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy",
                                    "mean_squared_error" ("mse"), "mean_absolute_error" ("mae"), "huber" */
    bool from_logits; /* cross-entropies: predictions are logits, not probabilities */
    float label_smoothing; /* cross-entropies, the sparse one too (as PyTorch's): a share from 0 to 1 */
    float delta; /* huber; 0: 1; MANTA_ZERO: 0 */
    manta_reduction reduction;
    float weight; /* of this output in the total; 0: 1; MANTA_ZERO: 0, it does not count */
    manta_loss_fn fn; /* a program's own, then `name` is what it is called */
    const void *config;
} manta_loss;

/* Adds to *sum and *count over the rows (weighted when c->weight is given).
 * c->loss, c->grad and c->scale are not used. */
typedef manta_status (*manta_metric_fn)(const manta_loss_call *c, double *sum, double *count);

typedef struct manta_metric {
    const char *name; /* "accuracy" (chosen by loss and shapes as Keras does), "sparse_categorical_accuracy",
                                    "categorical_accuracy", "binary_accuracy", "top_k_categorical_accuracy",
                                    "sparse_top_k_categorical_accuracy", "mean_squared_error", "mean_absolute_error",
                                    or any other loss: its mean over the rows */
    int k; /* top-k; 0: 5 */
    float threshold; /* binary accuracy: above it is 1; 0: 0.5; MANTA_ZERO: 0, as for logits */
    int output; /* which output it looks at */
    manta_metric_fn fn; /* a program's own */
    const void *config;
} manta_metric;

#ifdef __cplusplus
}
#endif
#endif
