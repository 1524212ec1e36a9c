/* recipe_data.c - datasets from specs, shaped as settings and loss say. */
#include <string.h>
#include <unistd.h>

#include <manta/tool_text.h>

#include "base/args.h"
#include "train/recipe/recipe.h"
#include "train/recipe/settings.h"

/* The target is the input: x beside itself. Takes d. */
static manta_dataset *pair_with_itself(manta_dataset *d)
{
    static const char *const x[] = {"x"};
    manta_dataset *input = manta_dataset_select(manta_dataset_ref(d), 1, x);
    manta_dataset *target = manta_dataset_rename(manta_dataset_select(d, 1, x), "x", "y");

    return manta_dataset_zip(input, target);
}

/* Subtracts means and divides by deviations, when the settings or the model say so. *d is
 * replaced. */
static manta_status normalize_data(manta_recipe *r, manta_dataset **d)
{
    enum { MOST = 64 };
    const char *text = recipe_text(r, "normalize");
    double given[2 * MOST];
    float mean[MOST], std[MOST];
    char word[96];
    int n;

    if (!text && r->preset && !recipe_flag(r, "raw")) text = r->preset->normalize;
    if (!text) return MANTA_OK;
    if (settings_reals(recipe_word(r, "normalize", word, sizeof word), text, 2 * MOST, given, &n))
        return recipe_blame(r, "normalize", MANTA_EINVAL);
    if (n % 2)
        return recipe_fail(r, "normalize", "%d numbers, expected a mean and a deviation for each channel", n);
    for (int i = 0; i < n / 2; i++) {
        mean[i] = (float)given[i];
        std[i] = (float)given[n / 2 + i];
        if (std[i] <= 0)
            return recipe_fail(r, "normalize", "a deviation of %g, expected more than 0", given[n / 2 + i]);
    }
    *d = manta_dataset_normalize(*d, "x", n / 2, mean, std);
    return MANTA_OK;
}

static bool has_integers(const manta_dataset *d, const char *name)
{
    const manta_column_spec *c;
    int n = manta_dataset_columns(d, &c);

    for (int i = 0; i < n; i++) {
        if (strcmp(c[i].name, name)) continue;
        return c[i].dtype == MANTA_DTYPE_I64 || c[i].dtype == MANTA_DTYPE_I32 || c[i].dtype == MANTA_DTYPE_U8;
    }
    return false;
}

/* A word without any sign of a file was probably meant as a dataset's name. */
static manta_status fail_unknown_data(manta_status st, const char *spec)
{
    manta_suggestion near = manta_suggestion_for(spec);
    const char *name;
    char hint[96];

    if (strpbrk(spec, "./,:") || !access(spec, F_OK)) return st;
    for (int i = 0; (name = manta_data_name(i)); i++) {
        if (!strcmp(spec, name)) return st;
        manta_suggestion_offer(&near, name);
    }
    return manta_fail(st, "no dataset and no file is called '%s'; the datasets are mnist and fashion-mnist%s",
                      spec, manta_suggestion_text(&near, hint, sizeof hint));
}

/* What the loss compares with: the samples themselves, or class numbers that are checked. Takes d. */
static manta_dataset *shape_targets(const manta_recipe *r, manta_dataset *d)
{
    manta_array y = manta_model_output(r->m, 0, NULL);

    if (r->preset && r->preset->target_is_input) return pair_with_itself(d);
    if (manta_recipe_is_sparse(r) && has_integers(d, "y"))
        return manta_dataset_labels(d, "y", y.shape[y.ndim - 1]);
    return d;
}

/* The dataset that a text names, as it is. */
static manta_status open_data(manta_recipe *r, const char *spec, bool targets, manta_dataset **out)
{
    manta_table *learnt = NULL;
    manta_open_options how = {.raw = recipe_flag(r, "raw"), .inputs_only = !targets, .learnt = &learnt};
    manta_status st;

    if (!r->m)
        return manta_fail(MANTA_EINVAL, "the recipe has no model yet, expected one to be opened first");
    if (recipe_real(r, "scale", 1) == 0)
        return recipe_fail(r, "scale", "samples cannot be divided by 0, expected another number");
    if (targets) TRY(recipe_need_loss(r));
    TRY(recipe_image_options(r, &how));
    TRY(recipe_find_table(r, spec));
    how.table = r->table;
    st = manta_dataset_open(spec, &how, out);
    if (learnt) r->table = learnt; /* there was none, else nothing would have been learnt */
    return st == MANTA_ENOENT ? fail_unknown_data(st, spec) : st;
}

/* What settings, model and loss make of it. Takes d; training: images are augmented. */
static manta_status shape_data(manta_recipe *r, manta_dataset *d, bool targets, bool training,
                               manta_dataset **out)
{
    double scale = recipe_real(r, "scale", 1);
    manta_status st;

    if (scale != 1) d = manta_dataset_scale(d, "x", (float)scale);
    if ((st = recipe_shape_images(r, training, &d))) goto out;
    if ((st = normalize_data(r, &d))) goto out;
    if (targets) d = shape_targets(r, d);
    if ((st = manta_dataset_status(d))) goto out;
    *out = d;
    d = NULL;
out:
    manta_dataset_unref(d);
    return st;
}

manta_status manta_recipe_dataset(manta_recipe *r, const char *spec, bool targets, manta_dataset **out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(spec);
    REFUSE_NULL(out);

    manta_dataset *d = NULL;

    recipe_begin(r);
    TRY(open_data(r, spec, targets, &d));
    return shape_data(r, d, targets, false, out);
}

/* Keras's: the last part is kept back, before anything is shuffled. */
static manta_status split_data(const manta_recipe *r, manta_dataset **data, manta_dataset **validation)
{
    double split = recipe_real(r, "validation-split", 0);
    int64_t n = manta_dataset_count(*data), first;

    if (n < 0)
        return manta_fail(MANTA_EINVAL, "%svalidation-split: the length of the data is not known", r->prefix);
    first = (int64_t)((double)n * (1 - split));
    if (first < 1 || first >= n) {
        return manta_fail(MANTA_EINVAL, "%svalidation-split %g of %lld samples leaves one part empty",
                          r->prefix, split, (long long)n);
    }
    *validation = manta_dataset_skip(manta_dataset_ref(*data), first);
    *data = manta_dataset_take(*data, first);
    TRY(manta_dataset_status(*data));
    return manta_dataset_status(*validation);
}

/* *d changes hands. */
static manta_dataset *take_dataset(manta_dataset **d)
{
    manta_dataset *taken = *d;

    *d = NULL;
    return taken;
}

manta_status manta_recipe_datasets(manta_recipe *r, manta_dataset **data, manta_dataset **validation)
{
    REFUSE_NULL(r);
    REFUSE_NULL(data);
    REFUSE_NULL(validation);

    const char *spec = recipe_text(r, "data"), *other = recipe_text(r, "validation");
    manta_dataset *d = NULL, *v = NULL, *train = NULL;
    manta_status st;

    recipe_begin(r);
    if (!spec) return recipe_fail(r, "data", "it is not set, expected a dataset such as mnist");
    if ((st = open_data(r, spec, true, &d))) goto out;
    if (!other && recipe_flag(r, "validation-split") && (st = split_data(r, &d, &v))) goto out;
    if (other && (st = open_data(r, other, true, &v))) goto out;
    if ((st = shape_data(r, take_dataset(&d), true, true, &train))) goto out;
    if (v && (st = shape_data(r, take_dataset(&v), true, false, validation))) goto out;
    if (!other && !recipe_flag(r, "validation-split")) *validation = NULL;
    *data = train;
    train = NULL;
out:
    manta_dataset_unref(train);
    manta_dataset_unref(d);
    manta_dataset_unref(v);
    return st;
}
