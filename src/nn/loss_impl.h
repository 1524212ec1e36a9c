/* nn/loss_impl.h - the functions behind the names of loss.h; only loss*.c,
 * metric*.c and lower*.c include it. */
#ifndef NN_LOSS_IMPL_H
#define NN_LOSS_IMPL_H

#include "base/status.h"
#include "nn/loss.h"

manta_status loss_sparse_category(const manta_loss_call *c); /* loss_category.c */
manta_status loss_dense_category(const manta_loss_call *c);
manta_status loss_binary(const manta_loss_call *c); /* loss_element.c */
manta_status loss_squared(const manta_loss_call *c);
manta_status loss_absolute(const manta_loss_call *c);
manta_status loss_huber(const manta_loss_call *c);

/* The options in c->config; Keras's defaults when it is NULL. */
static inline const loss_config *loss_options(const manta_loss_call *c)
{
    static const loss_config defaults = {.delta = 1.0f, .threshold = 0.5f, .k = 5};

    return c->config ? c->config : &defaults;
}

/* The canonical name of a built-in loss's function; NULL for a program's own. */
const char *loss_name_of(manta_loss_fn fn, bool *sparse);

/* The canonical name of a built-in metric's function; NULL for a program's own. */
const char *metric_name_of(manta_metric_fn fn);

/* "a, b, c": the built-in names. */
const char *loss_names(void);

#endif
