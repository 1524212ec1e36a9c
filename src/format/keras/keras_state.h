/* keras_state.h - weights and optimizer state between named arrays and the
 * places Keras gives them in an HDF5 file. */
#ifndef FORMAT_KERAS_KERAS_STATE_H
#define FORMAT_KERAS_KERAS_STATE_H

#include "format/hdf5/h5.h"
#include "format/hdf5/h5_out.h"
#include "format/keras/keras_tree.h"
#include "format/model/model_file.h"

/* Reads the variables of m out of f (the layout of .keras and .weights.h5), and
 * the optimizer's arrays where the file has what `optimizer` (NULL: none) keeps;
 * when it has something else they are left, and the log says so. `path` is for
 * sentences. */
manta_status keras_state_read(const char *path, h5_file *f, const manta_model *m,
                              const manta_optimizer *optimizer, manta_saved *s) MANTA_MUST_USE;

/* Reads the optimizer's arrays from the n datasets at `places`, in Keras's order. */
manta_status keras_slots_read(const char *path, h5_file *f, const manta_model *m,
                              const manta_optimizer *optimizer, size_t n, char *const *places,
                              manta_saved *s) MANTA_MUST_USE;

/* What a file of weights alone holds: the variables of o->like, or without it all its datasets by their paths. */
manta_status keras_weights_read(const char *path, h5_file *f, const manta_read_options *o,
                                manta_saved *s) MANTA_MUST_USE;

/* Arrays ready to be written: row-major float32 or int64, converted where they were not. */
typedef struct keras_state {
    keras_variables variables; /* in Keras's order */
    keras_groups groups;
    VEC(manta_array) arrays; /* the arrays of the variables */
    VEC(char *) slot_names; /* what the optimizer keeps, in Keras's order, under our names; owned */
    VEC(manta_array) slots; /* empty when the contents have not all of it */
    VEC(void *) memory; /* memory that converted arrays lie in */
} keras_state;

/* Collects what `c` has for the tree. MANTA_ENOENT a variable without an array, MANTA_EINVAL another shape. */
manta_status keras_state_collect(const char *path, const keras_tree *t, const manta_contents *c,
                                 keras_state *out) MANTA_MUST_USE;
void keras_state_release(keras_state *k); /* accepts zeroed memory */

/* Describes the file: groups, variables, optimizer. k must outlive o. */
void keras_state_place(const keras_state *k, h5_out *o);

#endif
