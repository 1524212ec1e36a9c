/* metric.c - the metrics: accuracies, top-k, and any loss averaged over rows.
 *
 * A row whose predictions hold a NaN is never counted as right; the metrics
 * that are losses become NaN. So a broken model cannot look good. */
#include "nn/loss.h"

#include <inttypes.h>
#include <math.h>

#include <manta/tool_text.h>

#include "base/option.h"
#include "nn/loss_impl.h"
#include "nn/loss_rows.h"
#include "nn/loss_target.h"
#include "nn/name.h"

/* Whether class `label` is the first largest of x. Every comparison is turned
 * so that NaN makes it true. */
static bool is_first_largest(int64_t n, const float *x, int64_t label)
{
    float v = x[label];
    unsigned beaten = (unsigned)(v != v);

    for (int64_t i = 0; i < label; i++) beaten |= (unsigned)!(x[i] < v);
    for (int64_t i = label + 1; i < n; i++) beaten |= (unsigned)!(x[i] <= v);
    return !beaten;
}

/* As TensorFlow's in_top_k: fewer than k are larger, so that ties count as in;
 * a number that is not finite makes it false. */
static bool is_in_top_k(int64_t n, const float *x, int64_t label, int64_t k)
{
    float v = x[label];
    int64_t larger = 0;
    unsigned odd = 0;

    for (int64_t i = 0; i < n; i++) {
        larger += x[i] > v;
        odd |= (unsigned)!(fabsf(x[i]) < INFINITY);
    }
    return !odd && larger < k;
}

/* The first largest of a dense target's row. */
static manta_status dense_class(const manta_loss_call *c, const char *what, int64_t row, int64_t *out)
{
    float t[LOSS_BLOCK], best = -INFINITY;

    *out = 0;
    for (int64_t i = 0; i < c->classes; i += LOSS_BLOCK) {
        int n = c->classes - i < LOSS_BLOCK ? (int)(c->classes - i) : LOSS_BLOCK;
        TRY(loss_target_read(c, what, LOSS_ANY, row * c->classes + i, n, t));
        for (int j = 0; j < n; j++) {
            if (t[j] <= best) continue;
            best = t[j];
            *out = i + j;
        }
    }
    return MANTA_OK;
}

/* Adds one row of value v. */
static void add_row(const manta_loss_call *c, int64_t row, double v, double *sum, double *count)
{
    double weight = c->weight ? (double)c->weight[row] : 1.0;

    *sum += weight * v;
    *count += weight;
}

/* Whether the target class of each row is among the k best; k 0: the best, first of ties. */
static manta_status classes_right(const manta_loss_call *c, const char *what, bool sparse, int64_t k,
                                  double *sum, double *count)
{
    TRY(loss_target_fits(c, what, sparse));
    for (int64_t r = 0; r < c->rows; r++) {
        const float *x = c->pred + r * c->classes;
        int64_t label;
        TRY((sparse ? loss_target_class : dense_class)(c, what, r, &label));
        bool right = k ? is_in_top_k(c->classes, x, label, k) : is_first_largest(c->classes, x, label);
        add_row(c, r, right, sum, count);
    }
    return MANTA_OK;
}

static manta_status sparse_accuracy(const manta_loss_call *c, double *sum, double *count)
{
    return classes_right(c, "sparse_categorical_accuracy", true, 0, sum, count);
}

static manta_status dense_accuracy(const manta_loss_call *c, double *sum, double *count)
{
    return classes_right(c, "categorical_accuracy", false, 0, sum, count);
}

static int64_t k_of(const manta_loss_call *c)
{
    int k = loss_options(c)->k;

    return k > 0 ? k : 5;
}

static manta_status sparse_top_k(const manta_loss_call *c, double *sum, double *count)
{
    return classes_right(c, "sparse_top_k_categorical_accuracy", true, k_of(c), sum, count);
}

static manta_status dense_top_k(const manta_loss_call *c, double *sum, double *count)
{
    return classes_right(c, "top_k_categorical_accuracy", false, k_of(c), sum, count);
}

/* The share of a row's elements on the side of the threshold that the target says. */
static manta_status binary_accuracy(const manta_loss_call *c, double *sum, double *count)
{
    static const char what[] = "binary_accuracy";
    float threshold = (float)option_real((double)loss_options(c)->threshold, 0.5);
    float t[LOSS_BLOCK];

    TRY(loss_target_fits(c, what, false));
    for (int64_t r = 0; r < c->rows; r++) {
        int64_t right = 0;
        for (int64_t i = 0; i < c->classes; i += LOSS_BLOCK) {
            int n = c->classes - i < LOSS_BLOCK ? (int)(c->classes - i) : LOSS_BLOCK;
            const float *p = c->pred + r * c->classes + i;
            TRY(loss_target_read(c, what, LOSS_ANY, r * c->classes + i, n, t));
            for (int j = 0; j < n; j++) right += p[j] == p[j] && t[j] == (p[j] > threshold ? 1.0f : 0.0f);
        }
        add_row(c, r, (double)right / (double)c->classes, sum, count);
    }
    return MANTA_OK;
}

/* "accuracy": Keras looks at the shapes, and so can we, once they are here. */
static manta_status accuracy_sum(const manta_loss_call *c, double *sum, double *count)
{
    if (c->classes == 1) return binary_accuracy(c, sum, count);
    if (manta_array_count(&c->target) == c->rows) return sparse_accuracy(c, sum, count);
    return dense_accuracy(c, sum, count);
}

/* Elements per row of a target as it lies. */
static int64_t target_width(const manta_loss_call *c)
{
    return c->rows > 0 ? manta_array_count(&c->target) / c->rows : 1;
}

/* The mean of a loss: a few rows at a time, since a metric has no memory of its own. */
static manta_status mean_loss(const manta_loss_call *c, manta_loss_fn fn, double *sum, double *count)
{
    enum { ROWS = 64 };
    float loss[ROWS];
    bool sparse;
    const char *name = loss_name_of(fn, &sparse);

    TRY(loss_target_fits(c, name, sparse));
    int64_t width = target_width(c);
    for (int64_t r = 0; r < c->rows; r += ROWS) {
        int64_t n = c->rows - r < ROWS ? c->rows - r : ROWS;
        int64_t shape[2] = {n, width};
        manta_loss_call part = *c;
        part.rows = n;
        part.pred = c->pred + r * c->classes;
        part.target =
            manta_array_of(c->target.dtype, 2, shape,
                           (char *)c->target.data + (size_t)(r * width) * manta_dtype_size(c->target.dtype));
        part.loss = loss;
        part.grad = NULL;
        TRY(fn(&part));
        for (int64_t i = 0; i < n; i++) add_row(c, r + i, (double)loss[i], sum, count);
    }
    return MANTA_OK;
}

static manta_status mean_sparse_category(const manta_loss_call *c, double *sum, double *count)
{
    return mean_loss(c, loss_sparse_category, sum, count);
}

static manta_status mean_dense_category(const manta_loss_call *c, double *sum, double *count)
{
    return mean_loss(c, loss_dense_category, sum, count);
}

static manta_status mean_binary(const manta_loss_call *c, double *sum, double *count)
{
    return mean_loss(c, loss_binary, sum, count);
}

static manta_status mean_squared(const manta_loss_call *c, double *sum, double *count)
{
    return mean_loss(c, loss_squared, sum, count);
}

static manta_status mean_absolute(const manta_loss_call *c, double *sum, double *count)
{
    return mean_loss(c, loss_absolute, sum, count);
}

static manta_status mean_huber(const manta_loss_call *c, double *sum, double *count)
{
    return mean_loss(c, loss_huber, sum, count);
}

/* What form of target a metric takes. */
typedef enum form { FORM_OF_LOSS, FORM_SPARSE, FORM_DENSE } form;

static const struct {
    const char *name, *alias;
    manta_metric_fn fn;
    form form;
} metrics[] = {
    {"accuracy", "acc", accuracy_sum, FORM_OF_LOSS},
    {"sparse_categorical_accuracy", NULL, sparse_accuracy, FORM_SPARSE},
    {"categorical_accuracy", NULL, dense_accuracy, FORM_DENSE},
    {"binary_accuracy", NULL, binary_accuracy, FORM_DENSE},
    {"sparse_top_k_categorical_accuracy", NULL, sparse_top_k, FORM_SPARSE},
    {"top_k_categorical_accuracy", NULL, dense_top_k, FORM_DENSE},
    {"mean_squared_error", "mse", mean_squared, FORM_DENSE},
    {"mean_absolute_error", "mae", mean_absolute, FORM_DENSE},
    {"sparse_categorical_crossentropy", NULL, mean_sparse_category, FORM_SPARSE},
    {"categorical_crossentropy", NULL, mean_dense_category, FORM_DENSE},
    {"binary_crossentropy", "bce", mean_binary, FORM_DENSE},
    {"huber", NULL, mean_huber, FORM_DENSE},
};
enum { N_METRICS = sizeof metrics / sizeof metrics[0] };

const char *metric_name_of(manta_metric_fn fn)
{
    for (int i = 0; i < N_METRICS; i++) {
        if (metrics[i].fn == fn) return metrics[i].name;
    }
    return NULL;
}

static manta_status check_options(const manta_metric *m)
{
    if (m->k < 0)
        return manta_fail(MANTA_EINVAL, "metric %s: k is %d; expected a positive number, or 0 for 5", m->name,
                          m->k);
    if (!(option_real((double)m->threshold, 0.5) >= 0 && isfinite(m->threshold)))
        return manta_fail(MANTA_EINVAL,
                          "metric %s: threshold is %g; expected a positive number, 0 for 0.5, or MANTA_ZERO",
                          m->name, (double)m->threshold);
    return MANTA_OK;
}

/* Refuses a metric that could not read the target its output's loss reads. */
static manta_status check_form(const manta_metric *m, form f, const loss_fn *loss, int64_t classes)
{
    bool sparse;

    if (f == FORM_OF_LOSS || classes == 1 || !loss || !loss_name_of(loss->fn, &sparse)) return MANTA_OK;
    if (sparse == (f == FORM_SPARSE)) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "metric %s takes %s, and the targets of loss %s are %s", m->name,
                      f == FORM_SPARSE ? "one integer per row" : "one number per prediction", loss->name,
                      sparse ? "one integer per row" : "one number per prediction");
}

static manta_status fail_unknown_metric(const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    char hint[96];

    for (int i = 0; i < N_METRICS; i++) {
        manta_suggestion_offer(&near, metrics[i].name);
        if (metrics[i].alias) manta_suggestion_offer(&near, metrics[i].alias);
    }
    return manta_fail(MANTA_ENOENT,
                      "there is no metric \"%.60s\" (there are accuracy, sparse_categorical_accuracy, "
                      "categorical_accuracy, binary_accuracy, sparse_top_k_categorical_accuracy, "
                      "top_k_categorical_accuracy and the losses: %s)%s",
                      name, loss_names(), manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status metric_find(const manta_metric *m, const loss_fn *loss, int64_t classes, metric_fn *out)
{
    if (m->fn) {
        *out = (metric_fn){.fn = m->fn, .name = m->name ? m->name : "metric", .sparse = loss && loss->sparse};
        return MANTA_OK;
    }
    if (!m->name) return manta_fail(MANTA_EINVAL, "a metric needs a name or a function");
    for (int i = 0; i < N_METRICS; i++) {
        if (!name_same(m->name, metrics[i].name) &&
            !(metrics[i].alias && name_same(m->name, metrics[i].alias)))
            continue;
        TRY(check_options(m));
        TRY(check_form(m, metrics[i].form, loss, classes));
        *out = (metric_fn){.fn = metrics[i].fn,
                           .name = m->name,
                           .sparse = metrics[i].form == FORM_OF_LOSS ? loss && loss->sparse
                                                                     : metrics[i].form == FORM_SPARSE};
        return MANTA_OK;
    }
    return fail_unknown_metric(m->name);
}
