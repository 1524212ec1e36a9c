/* keras_draft.c - what every file of Keras's is written from. */
#include "format/keras/keras_draft.h"

#include "format/keras/keras_lower.h"

manta_status keras_draft_fail(const char *path, manta_status st)
{
    return st ? manta_fail(st, "%s: %s", path, manta_error_text()) : MANTA_OK;
}

manta_status keras_draft_model(keras_draft *d, const char *path, const manta_contents *c)
{
    if (!c->model)
        return manta_fail(MANTA_EINVAL, "%s: a Keras file needs the model; there are only arrays", path);
    TRY(keras_draft_fail(path, keras_lower(c->model, &d->model)));
    d->tree = keras_tree_new(d->model);
    return MANTA_OK;
}

manta_status keras_draft_arrays(keras_draft *d, const char *path, const manta_contents *c)
{
    return keras_state_collect(path, d->tree, c, &d->state);
}

void keras_draft_release(keras_draft *d)
{
    h5_out_release(&d->file);
    keras_state_release(&d->state);
    keras_tree_free(d->tree);
    manta_model_free(d->model);
    *d = (keras_draft){0};
}
