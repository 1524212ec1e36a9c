/* model_open.c - a model from a word, and what a model of the zoo is trained with. */
#include "train/recipe/model_open.h"

#include <string.h>

#include "base/args.h"
#include "base/status.h"

static const manta_recipe_defaults defaults[] = {
    {.model = "mnist-cnn",
     .loss = "sparse_categorical_crossentropy",
     .metrics = "accuracy",
     .optimizer = "adam",
     .from_logits = true},
    {.model = "resnet18",
     .loss = "sparse_categorical_crossentropy",
     .metrics = "accuracy",
     .optimizer = "adam",
     .from_logits = true,
     .normalize = "0.5,0.5"},
    {.model = "mlp",
     .loss = "sparse_categorical_crossentropy",
     .metrics = "accuracy",
     .optimizer = "adam",
     .from_logits = true},
    {.model = "linear", .loss = "mean_squared_error", .metrics = "mean_absolute_error", .optimizer = "sgd"},
    {.model = "autoencoder",
     .loss = "mean_squared_error",
     .metrics = "mean_absolute_error",
     .optimizer = "adam",
     .target_is_input = true},
};

const manta_recipe_defaults *manta_recipe_defaults_of(const char *model)
{
    REFUSE_NULL_OR(model, NULL);

    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (!strcmp(defaults[i].model, model)) return &defaults[i];
    }
    return NULL;
}

static bool ends_in(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);

    return n > m && !strcmp(text + n - m, ending);
}

/* Whether a name means a file, there or not. */
static bool means_file(const char *name)
{
    manta_file_format f;

    for (int i = 0; manta_file_format_at(i, &f); i++) {
        if (ends_in(name, f.ending) || (f.also && ends_in(name, f.also))) return true;
    }
    return manta_file_guess(name) != NULL;
}

static manta_status open_file(const char *path, const char *weights, manta_saved **saved, manta_model **out)
{
    manta_saved *s;

    TRY(manta_file_read(path, &(manta_read_options){.model_only = !saved}, &s));
    if (!manta_saved_model(s)) {
        manta_saved_free(s);
        return manta_fail(MANTA_EINVAL, "%s: holds weights but no model; name the model and give it to %s",
                          path, weights);
    }
    *out = manta_saved_take_model(s);
    if (saved) {
        *saved = s;
    } else {
        manta_saved_free(s);
    }
    return MANTA_OK;
}

manta_status model_open(const char *name, const char *weights, manta_saved **saved, manta_model **out)
{
    if (means_file(name)) return open_file(name, weights, saved, out);
    TRY(manta_zoo(name, out));
    if (saved) *saved = NULL;
    return MANTA_OK;
}

manta_status manta_model_open(const char *name, manta_saved **saved, manta_model **out)
{
    REFUSE_NULL(name);
    REFUSE_NULL(out);
    return model_open(name, "weights", saved, out);
}
