/* keras_draft.h - what every file of Keras's is written from: the model in Keras's words,
 * its layers in Keras's order, the arrays that belong to them, and the HDF5 file to be.
 *
 *     keras_draft d = {0};
 *     st = keras_draft_model(&d, path, c);
 *     if (!st) st = keras_draft_arrays(&d, path, c);
 *     ...
 *     keras_draft_release(&d); */
#ifndef FORMAT_KERAS_KERAS_DRAFT_H
#define FORMAT_KERAS_KERAS_DRAFT_H

#include "format/hdf5/h5_out.h"
#include "format/keras/keras_state.h"
#include "format/keras/keras_tree.h"
#include "format/model/model_file.h"

typedef struct keras_draft {
    manta_model *model; /* in the words that Keras has */
    keras_tree *tree;
    keras_state state; /* filled by keras_draft_arrays() */
    h5_out file; /* empty: each format describes its own; state must outlive it */
} keras_draft;

/* Takes the model of the contents. MANTA_EINVAL they have none; MANTA_EUNSUPPORTED a layer that Keras
 * has no words for, by its name and with `path` before it. */
manta_status keras_draft_model(keras_draft *d, const char *path, const manta_contents *c) MANTA_MUST_USE;

/* Collects the arrays, after the model; keras_state_collect()'s failures. */
manta_status keras_draft_arrays(keras_draft *d, const char *path, const manta_contents *c) MANTA_MUST_USE;

void keras_draft_release(keras_draft *d); /* accepts zeroed memory */

/* Puts the path before a sentence that does not say which file it is about. */
manta_status keras_draft_fail(const char *path, manta_status st) MANTA_MUST_USE;

#endif
