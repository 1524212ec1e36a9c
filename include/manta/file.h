/* manta/file.h - models and weights in the files of other libraries.
 *
 * Whatever the format, a file becomes one thing, a manta_saved: the model (when
 * the file describes one), what it was compiled with, and its state as named
 * arrays, which are the same for every format:
 *
 *     conv2d/kernel                    a variable, as the model calls it
 *     optimizer/velocity/conv2d/kernel what the optimizer keeps for a variable
 *     optimizer/iterations             int64, calls of the optimizer so far
 *     optimizer/learning_rate          float64, unless a schedule rules it
 *     run/...                          where a run stood (seed, position)
 *
 * Writing takes the same. So converting a file is a read and a write:
 *
 *     manta_saved *saved;
 *     MANTA_TRY(manta_file_read("m.keras", NULL, &saved));
 *     manta_contents c = manta_saved_contents(saved);
 *     manta_status st = manta_file_write("m.safetensors", NULL, &c);
 *     manta_saved_free(saved);
 *     return st;
 *
 * A file is taken for what its contents are, then for what its name says.
 * Every reader treats its input as hostile: it fails with one sentence that
 * names the file and the place in it.
 *
 * Threads: a manta_saved may be read by several. */
#ifndef MANTA_FILE_H
#define MANTA_FILE_H

#include <manta/data.h>
#include <manta/loss.h>
#include <manta/model.h>
#include <manta/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_saved manta_saved;

/* Zeroed memory is the default. */
typedef struct manta_read_options {
    const char *format; /* a name of manta_file_format_at(); NULL: by contents and name */
    const manta_model *like; /* built; names and shapes for a file that holds weights only. Without it such
                                a file's arrays keep the names they have there. Ignored by a file that
                                describes its own model. */
    bool model_only; /* leave the arrays: the model and what it was compiled with are enough */
} manta_read_options;

/* Reads the file at `path`: .keras, a Keras config.json, .weights.h5, .h5, .npz, ...
 * options may be NULL. *out: owned by the caller, manta_saved_free(); untouched
 * on failure.
 * MANTA_ENOENT nothing there, or an array that the model needs is missing;
 * MANTA_ECORRUPT not what it claims to be; MANTA_EUNSUPPORTED a layer, a type
 * or a format that Manta has not, by name; MANTA_EINVAL a shape that does not
 * fit. */
MANTA_API manta_status manta_file_read(const char *path, const manta_read_options *options,
                                       manta_saved **out) MANTA_MUST_USE;
MANTA_API void manta_saved_free(manta_saved *s); /* accepts NULL */

MANTA_API const char *manta_saved_format(const manta_saved *s); /* "keras"; static */

/* The model, built; NULL when the file describes none. Borrowed. */
MANTA_API const manta_model *manta_saved_model(const manta_saved *s);
/* Hands the model over to the caller, who frees it with manta_model_free(); from then on
 * manta_saved_model() gives NULL. NULL when the file describes none. */
MANTA_API manta_model *manta_saved_take_model(manta_saved *s);

/* What the model was compiled with. Each speaks for itself only: a loss that
 * Manta has not is no reason to refuse the optimizer. MANTA_ENOENT the file
 * says nothing of it; MANTA_EUNSUPPORTED it names what Manta has not. Losses
 * come one per output; both lists are borrowed until manta_saved_free(). */
MANTA_API manta_status manta_saved_optimizer(const manta_saved *s, manta_optimizer *out) MANTA_MUST_USE;
MANTA_API manta_status manta_saved_losses(const manta_saved *s, int *n,
                                          const manta_loss **out) MANTA_MUST_USE;
MANTA_API manta_status manta_saved_metrics(const manta_saved *s, int *n,
                                           const manta_metric **out) MANTA_MUST_USE;

/* The arrays, row-major, aligned for their dtype, in the order of the file or
 * of the model. Borrowed until manta_saved_drop_arrays() or manta_saved_free().
 * NULL: none. */
MANTA_API int manta_saved_arrays(const manta_saved *s);
MANTA_API const manta_column *manta_saved_at(const manta_saved *s, int i);
MANTA_API const manta_array *manta_saved_find(const manta_saved *s, const char *name);
/* Gives the arrays' memory back, of which there are none from now on; all else stays. */
MANTA_API void manta_saved_drop_arrays(manta_saved *s);

/* What else the file says about itself, text by name ("keras_version"); NULL: nothing by that name. */
MANTA_API const char *manta_saved_note(const manta_saved *s, const char *name);

typedef struct manta_note {
    const char *name, *text;
} manta_note;

/* What is written. Zeroed memory is an empty file's; a format takes what it has
 * a place for and needs what it cannot do without. All is borrowed for the call. */
typedef struct manta_contents {
    const manta_model *model; /* built */
    const manta_optimizer *optimizer; /* NULL: none */
    int n_losses, n_metrics;
    const manta_loss *losses;
    const manta_metric *metrics;
    int n_arrays;
    const manta_column *arrays; /* any dtype and strides */
    int n_notes;
    const manta_note *notes;
} manta_contents;

/* All of what was read, borrowed from s; a compile setting that Manta has not is left out. */
MANTA_API manta_contents manta_saved_contents(const manta_saved *s);

/* Writes the file so that it appears whole or not at all; the ending of `path`
 * says the format: .keras, .weights.h5, .npz, ... `format` (NULL: by the
 * ending) chooses where that is not enough: "h5" is the legacy Keras file.
 * MANTA_EINVAL an ending that says nothing, or contents that lack what the
 * format needs; MANTA_EUNSUPPORTED what the format has no words for. */
MANTA_API manta_status manta_file_write(const char *path, const char *format,
                                        const manta_contents *c) MANTA_MUST_USE;

/* A layer as a file lists it, whether Manta has it or not. */
typedef struct manta_outline_layer {
    char *name, *class_name; /* as the file says them: text that nobody has checked */
    int nesting; /* 0: a layer of the model itself; 1: of a model that is a layer of it; ... */
    int ndim; /* of what it gives, 0: the file does not say; an open dimension is -1 */
    int64_t shape[MANTA_MAX_DIMS];
    char *problem; /* why Manta cannot make it ("is a LSTM, which Manta does not have"); NULL: it can */
} manta_outline_layer;

typedef struct manta_outline {
    int n;
    manta_outline_layer *layers;
} manta_outline;

/* The layers that a file of a Keras model lists, for a model that manta_file_read()
 * refuses because of some of them. *out: owned by the caller, manta_outline_release();
 * untouched on failure.
 * MANTA_EUNSUPPORTED the file is of a format that lists no layers. */
MANTA_API manta_status manta_file_outline(const char *path, manta_outline *out) MANTA_MUST_USE;
MANTA_API void manta_outline_release(manta_outline *o); /* accepts NULL and a zeroed one; leaves one */

typedef struct manta_file_format {
    const char *name; /* "keras" */
    const char *about; /* a line for people */
    const char *ending; /* ".keras" */
    const char *also; /* another ending that means it, ".pth"; NULL: none */
    bool writes; /* false: read only */
    bool has_model; /* describes the model; false: weights only */
} manta_file_format;

/* The i-th format; false past the last. */
MANTA_API bool manta_file_format_at(int i, manta_file_format *out);
/* The name of the format that what lies at `path`, or else its name, suggests;
 * NULL when neither does. Static. */
MANTA_API const char *manta_file_guess(const char *path);

#ifdef __cplusplus
}
#endif
#endif
