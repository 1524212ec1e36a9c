/* loss.c - the losses by name, and whether a target fits one. */
#include "nn/loss.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <manta/tool_text.h>

#include "base/option.h"
#include "nn/loss_impl.h"
#include "nn/loss_target.h"
#include "nn/name.h"

static const struct {
    const char *name, *alias;
    manta_loss_fn fn;
    bool sparse, softmax, sigmoid;
} losses[] = {
    {"sparse_categorical_crossentropy", NULL, loss_sparse_category, true, true, false},
    {"categorical_crossentropy", NULL, loss_dense_category, false, true, false},
    {"binary_crossentropy", "bce", loss_binary, false, false, true},
    {"mean_squared_error", "mse", loss_squared, false, false, false},
    {"mean_absolute_error", "mae", loss_absolute, false, false, false},
    {"huber", NULL, loss_huber, false, false, false},
};
enum { N_LOSSES = sizeof losses / sizeof losses[0] };

const char *loss_names(void)
{
    return "sparse_categorical_crossentropy, categorical_crossentropy, binary_crossentropy, "
           "mean_squared_error, mean_absolute_error, huber";
}

const char *loss_name_of(manta_loss_fn fn, bool *sparse)
{
    for (int i = 0; i < N_LOSSES; i++) {
        if (losses[i].fn != fn) continue;
        *sparse = losses[i].sparse;
        return losses[i].name;
    }
    return NULL;
}

static bool is_option(double v)
{
    return option_real(v, 1) >= 0 && isfinite(v);
}

static manta_status check_options(const manta_loss *l, const char *name)
{
    if (!(l->label_smoothing >= 0.0f && l->label_smoothing <= 1.0f))
        return manta_fail(MANTA_EINVAL, "loss %s: label_smoothing is %g; expected a number from 0 to 1", name,
                          (double)l->label_smoothing);
    if (!is_option((double)l->delta))
        return manta_fail(MANTA_EINVAL,
                          "loss %s: delta is %g; expected a positive number, 0 for 1, or MANTA_ZERO", name,
                          (double)l->delta);
    if (!is_option((double)l->weight))
        return manta_fail(MANTA_EINVAL,
                          "loss %s: weight is %g; expected a positive number, 0 for 1, or MANTA_ZERO", name,
                          (double)l->weight);
    if ((int)l->reduction < 0 || l->reduction > MANTA_REDUCTION_SUM)
        return manta_fail(MANTA_EINVAL, "loss %s: there is no reduction numbered %d", name,
                          (int)l->reduction);
    return MANTA_OK;
}

static manta_status fail_unknown_loss(const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    char hint[96];

    for (int i = 0; i < N_LOSSES; i++) {
        manta_suggestion_offer(&near, losses[i].name);
        if (losses[i].alias) manta_suggestion_offer(&near, losses[i].alias);
    }
    return manta_fail(MANTA_ENOENT, "there is no loss \"%.80s\" (there are %s)%s", name, loss_names(),
                      manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status loss_find(const manta_loss *l, loss_fn *out)
{
    if (l->fn) {
        TRY(check_options(l, l->name ? l->name : "of the program"));
        *out = (loss_fn){.fn = l->fn, .name = l->name ? l->name : "loss"};
        return MANTA_OK;
    }
    if (!l->name)
        return manta_fail(MANTA_EINVAL, "a loss needs a name or a function; names are %s", loss_names());
    for (int i = 0; i < N_LOSSES; i++) {
        if (!name_same(l->name, losses[i].name) && !(losses[i].alias && name_same(l->name, losses[i].alias)))
            continue;
        TRY(check_options(l, losses[i].name));
        if (l->label_smoothing > 0.0f && !losses[i].softmax && !losses[i].sigmoid)
            return manta_fail(MANTA_EINVAL, "loss %s: only cross-entropies have label_smoothing",
                              losses[i].name);
        *out = (loss_fn){.fn = losses[i].fn,
                         .name = losses[i].name,
                         .sparse = losses[i].sparse,
                         .logits_of_softmax = losses[i].softmax,
                         .logits_of_sigmoid = losses[i].sigmoid};
        return MANTA_OK;
    }
    return fail_unknown_loss(l->name);
}

/* What to try instead, when the target has the form of the other cross-entropy. */
static const char *hint_for(const loss_fn *l, int64_t rows, int64_t classes, int64_t count)
{
    if (l->sparse && classes > 1 && count == rows * classes)
        return "; categorical_crossentropy takes one-hot rows";
    if (!l->sparse && l->logits_of_softmax && classes > 1 && count == rows)
        return "; sparse_categorical_crossentropy takes integers";
    return "";
}

manta_status loss_check_target(const loss_fn *l, const char *output, int64_t rows, int64_t classes,
                               const manta_array *target)
{
    char given[96], expected[96];
    bool sparse;
    int64_t count = manta_array_count(target), want = l->sparse ? rows : rows * classes;

    if (!loss_name_of(l->fn, &sparse)) return MANTA_OK; /* a program's own knows best */
    /* The sentence of a bad dtype is the same as at the call; it needs no memory of the target. */
    manta_loss_call c = {.rows = rows, .classes = classes, .target = *target};
    if (count != want) c.target = manta_array_of(target->dtype, 1, &want, NULL);
    TRY(loss_target_fits(&c, l->name, l->sparse));
    bool last = l->sparse || classes == 1 || (target->ndim > 0 && target->shape[target->ndim - 1] == classes);
    if (count == want && last) return MANTA_OK;
    if (l->sparse)
        snprintf(expected, sizeof expected, "%" PRId64 " integers, one per row", rows);
    else
        snprintf(expected, sizeof expected, "shape (%" PRId64 ", %" PRId64 ")", rows, classes);
    return manta_fail(MANTA_EINVAL, "output %s: %s expects a target of %s, given %s %s%s", output, l->name,
                      expected, manta_dtype_name(target->dtype),
                      manta_shape_text(target->ndim, target->shape, given, sizeof given),
                      hint_for(l, rows, classes, count));
}
