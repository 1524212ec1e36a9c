/* manta/data.h - datasets, the stages that shape them, and the loader that
 * turns one into batches. Datasets out of files are in manta/data_file.h.
 *
 * A dataset is a description: where samples come from and what is done to
 * them. It is immutable and reads nothing by itself. A stage takes the dataset
 * it is given and returns a new one, so a pipeline is one expression:
 *
 *     manta_dataset *d = manta_dataset_arrays(2, columns, MANTA_OWNERSHIP_BORROW);
 *     manta_loader *loader;
 *     d = manta_dataset_shuffle(d, 0, seed);
 *     d = manta_dataset_scale(d, "x", 255);
 *     d = manta_dataset_batch(d, 64, false);
 *     MANTA_TRY(manta_loader_open(d, NULL, &loader));
 *     for (manta_batch b; manta_loader_next(loader, &b); ) use(&b);
 *     MANTA_TRY(manta_loader_status(loader));
 *
 * No stage returns NULL. A stage that cannot be (a column that is not there,
 * a batch of a batch) latches its sentence in the dataset it returns; every
 * later stage keeps the first one, and manta_loader_open() reports it. One
 * check serves a whole chain.
 *
 * Stages mean what tf.data means by them, in the order they are written.
 * Elements are samples until batch(), and batches after it. What is refused:
 * batch, cache, labels and whatever changes images after batch (put them
 * before it); concatenate and cache on a generator of unknown length, and a
 * full shuffle of one; zip of batches with samples; any stage that needs an
 * end (cache, full shuffle, skip of everything, the first of concatenate)
 * after repeat without end.
 *
 * Every random choice is a function of (seed, epoch, sample), never of time,
 * thread or address: the same seed gives the same batches whatever the number
 * of reader threads and wherever a run was interrupted. Each pass that repeat
 * makes over what lies before it counts as an epoch there.
 *
 * Threads: datasets may be shared; a loader is used by one thread at a time. */
#ifndef MANTA_DATA_H
#define MANTA_DATA_H

#include <manta/array.h>
#include <manta/option.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_MAX_COLUMNS   16
#define MANTA_COLUMN_NAME   64 /* bytes of a column's name, terminator included */

#define MANTA_FOREVER_COUNT ((int64_t)-1) /* repeat() without end; size of what it makes */
#define MANTA_UNKNOWN_COUNT ((int64_t)-2) /* size of a generator that does not say */

typedef struct manta_dataset manta_dataset; /* opaque, shared by reference count */
typedef struct manta_loader manta_loader; /* opaque, one owner */

/* One column of one sample: its shape leaves the samples' dimension out. */
typedef struct manta_column_spec {
    char name[MANTA_COLUMN_NAME];
    manta_dtype dtype;
    int ndim;
    int64_t shape[MANTA_MAX_DIMS];
} manta_column_spec;

/* A column of a sample, a batch or a set of arrays. */
typedef struct manta_column {
    const char *name;
    manta_array array;
} manta_column;

/* ---- sources ---------------------------------------------------------- */

typedef enum manta_ownership {
    MANTA_OWNERSHIP_BORROW, /* the caller's memory: must outlive the dataset and its loaders, unchanged */
    MANTA_OWNERSHIP_COPY /* copied now */
} manta_ownership;

/* n columns whose first dimension is the samples', of equal length. Arrays
 * must be row-major. */
MANTA_API manta_dataset *manta_dataset_arrays(int n, const manta_column *columns, manta_ownership ownership);

/* Samples that a function makes one after the other. Nobody can ask it for
 * sample 1000 without the 999 before: a seek replays it, and the log says so.
 * It runs on one reader thread, whatever the loader's `readers` says. */
typedef struct manta_generator {
    /* Begins a pass; *state is handed to next() and close(). Optional. */
    manta_status (*open)(void *user, int64_t epoch, void **state);
    /* Writes the next sample into out[0..n), or sets *end and writes nothing.
     * state is what open() gave, or `user` without open(). */
    manta_status (*next)(void *state, manta_column *out, int n, bool *end);
    void (*close)(void *state); /* ends a pass, also one cut short; optional */
    void (*release)(void *user); /* the dataset is gone; optional */
} manta_generator;

/* `count` is the samples of a pass when that is known, or MANTA_UNKNOWN_COUNT.
 * A generator that ends before its count is an error; one that has more is cut. */
MANTA_API manta_dataset *manta_dataset_generator(const manta_generator *g, void *user, int64_t count, int n,
                                                 const manta_column_spec *columns);

/* ---- life and description -------------------------------------------- */

MANTA_API manta_dataset *manta_dataset_ref(manta_dataset *d);
MANTA_API void manta_dataset_unref(manta_dataset *d); /* accepts NULL */

/* The latched error, raised on this thread, or MANTA_OK. */
MANTA_API manta_status manta_dataset_status(const manta_dataset *d) MANTA_MUST_USE;

/* Elements of one pass: samples, or batches after batch(). May be
 * MANTA_FOREVER_COUNT or MANTA_UNKNOWN_COUNT. */
MANTA_API int64_t manta_dataset_count(const manta_dataset *d);

/* Whether its elements are batches. */
MANTA_API bool manta_dataset_is_batched(const manta_dataset *d);

/* The columns of a sample; borrowed, valid while d lives. */
MANTA_API int manta_dataset_columns(const manta_dataset *d, const manta_column_spec **columns);

/* ---- stages: each takes d and returns its successor ------------------- */

/* A sample as a map function meets it. */
typedef struct manta_sample {
    int64_t epoch, index; /* the pass, and which sample of the source (which batch, after batch()) */
    int n_in, n_out;
    const manta_column *in; /* read only */
    manta_column *out; /* to be written whole */
    void *random; /* behind manta_sample_uniform() and its kin */
} manta_sample;

/* Must be a pure function of the sample and its random numbers: it runs on
 * reader threads, ahead of need, and perhaps twice for the same sample. */
typedef manta_status (*manta_map_fn)(manta_sample *s, void *user);

/* Random numbers of this (seed, epoch, sample): the same at every visit. */
MANTA_API double manta_sample_uniform(manta_sample *s); /* in [0, 1) */
MANTA_API double manta_sample_normal(manta_sample *s); /* mean 0, deviation 1 */
MANTA_API uint64_t manta_sample_below(manta_sample *s, uint64_t n); /* in [0, n); 0 when n is 0 */

/* Applies fn. `columns` describes the n output columns; n = 0 means as the
 * input. After batch() arrays have the batch's rows as their first dimension,
 * on both sides. */
MANTA_API manta_dataset *manta_dataset_map(manta_dataset *d, manta_map_fn fn, void *user, uint64_t seed,
                                           int n, const manta_column_spec *columns);

/* Shuffles with a buffer as tf.data does, in a new order each epoch. A buffer
 * of 0, or of all elements and more, is a full shuffle: a permutation computed
 * element by element, so that any place of any epoch is reached at once. A
 * smaller buffer replays indices, not data (8 bytes per element and reader). */
MANTA_API manta_dataset *manta_dataset_shuffle(manta_dataset *d, int64_t buffer, uint64_t seed);
/* Shuffles as manta_dataset_shuffle() does, in one order that every epoch repeats. */
MANTA_API manta_dataset *manta_dataset_shuffle_once(manta_dataset *d, int64_t buffer, uint64_t seed);

MANTA_API manta_dataset *manta_dataset_repeat(manta_dataset *d, int64_t times); /* or MANTA_FOREVER_COUNT */
MANTA_API manta_dataset *manta_dataset_shard(manta_dataset *d, int64_t n,
                                             int64_t i); /* i, i + n, i + 2n, ... */
MANTA_API manta_dataset *manta_dataset_take(manta_dataset *d, int64_t n);
MANTA_API manta_dataset *manta_dataset_skip(manta_dataset *d, int64_t n);

/* Groups of `size`; the last one of a pass may be smaller, unless dropped. */
MANTA_API manta_dataset *manta_dataset_batch(manta_dataset *d, int64_t size, bool drop_remainder);

/* a, then b; columns must agree. Takes both. */
MANTA_API manta_dataset *manta_dataset_concatenate(manta_dataset *a, manta_dataset *b);

/* The columns of both, side by side, as long as the shorter. Takes both;
 * a name in both is refused. */
MANTA_API manta_dataset *manta_dataset_zip(manta_dataset *a, manta_dataset *b);

/* Keeps in memory what lies before it, as epoch 0 made it, from the first
 * visit on; shared by all loaders of this dataset. */
MANTA_API manta_dataset *manta_dataset_cache(manta_dataset *d);

/* How many batches are made ahead of need (2 without it). */
MANTA_API manta_dataset *manta_dataset_prefetch(manta_dataset *d, int64_t n);

/* The column converted; numbers that the new type cannot hold are an error. */
MANTA_API manta_dataset *manta_dataset_cast(manta_dataset *d, const char *column, manta_dtype dtype);

/* f32 of x / divisor: 255 takes bytes to [0,1] with the bits that NumPy's
 * division gives. Done while the sample is gathered, in one pass. */
MANTA_API manta_dataset *manta_dataset_scale(manta_dataset *d, const char *column, float divisor);

/* f32 of (x - mean[c]) / std[c], c running over the last dimension; n = 1
 * applies to all of it. */
MANTA_API manta_dataset *manta_dataset_normalize(manta_dataset *d, const char *column, int n,
                                                 const float *mean, const float *std);

/* Pads an image column (H, W) or (H, W, C) by `pad` zeros on each side and
 * cuts out (height, width) at a place drawn per epoch and sample. */
MANTA_API manta_dataset *manta_dataset_random_crop(manta_dataset *d, const char *column, int pad, int height,
                                                   int width, uint64_t seed);

/* Mirrors left and right with probability `p`. */
MANTA_API manta_dataset *manta_dataset_random_flip(manta_dataset *d, const char *column, double p,
                                                   uint64_t seed);

/* What follows takes an image column (H, W) or (H, W, C) of f32 or u8; u8 is rounded. */

/* Resizes by bilinear interpolation between the middles of points, as Keras's Resizing and
 * torch's interpolate (align_corners=False) do, without a filter for making smaller. */
MANTA_API manta_dataset *manta_dataset_resize(manta_dataset *d, const char *column, int height, int width);

/* Cuts (height, width) out of the middle; where that is between two points, the upper left one counts. */
MANTA_API manta_dataset *manta_dataset_center_crop(manta_dataset *d, const char *column, int height,
                                                   int width);

/* Turns around the middle by an angle drawn from [-degrees, degrees], bilinear; what comes from outside
 * is 0. */
MANTA_API manta_dataset *manta_dataset_random_rotation(manta_dataset *d, const char *column, double degrees,
                                                       uint64_t seed);

/* Changes brightness, contrast and saturation, in this order, each by a factor drawn from
 * [max(0, 1 - v), 1 + v] with v as given and the arithmetic of torchvision's ColorJitter. f32 is cut to
 * [0, 1]. An image of one channel has no saturation. */
MANTA_API manta_dataset *manta_dataset_random_color(manta_dataset *d, const char *column, double brightness,
                                                    double contrast, double saturation, uint64_t seed);

/* Checks that every value of an integer column lies in [0, classes); a value
 * outside ends the reading with its sample and value. */
MANTA_API manta_dataset *manta_dataset_labels(manta_dataset *d, const char *column, int64_t classes);

MANTA_API manta_dataset *manta_dataset_rename(manta_dataset *d, const char *from, const char *to);
/* Only these n columns, in this order. */
MANTA_API manta_dataset *manta_dataset_select(manta_dataset *d, int n, const char *const *columns);

/* ---- loader ----------------------------------------------------------- */

typedef enum manta_sampler {
    MANTA_SAMPLER_SEQUENTIAL = 0,
    MANTA_SAMPLER_RANDOM, /* full shuffle by `seed`, a new order each epoch */
    MANTA_SAMPLER_DISTRIBUTED /* every replicas-th sample from `rank` on, in order */
} manta_sampler;

/* Zeroed memory is the default. A dataset that has its own batch() takes no
 * batch_size, drop_last or sampler. */
typedef struct manta_loader_options {
    int64_t batch_size; /* 0: 1 */
    bool drop_last; /* leave out the last batch of an epoch when it is smaller */
    manta_sampler sampler;
    uint64_t seed; /* of the sampler's order */
    int64_t replicas, rank; /* distributed: how many, and which of them */
    bool shuffle; /* distributed: shuffle by `seed` before dividing */
    bool pad; /* distributed: begin again from the first samples, so that all
                                ranks have the same number; else some have one less */
    int64_t steps_per_epoch; /* 0: an epoch is one pass. Else an epoch is so many batches, and the
                                data runs on across epochs as in Keras; needs repeat() to go on */
    int readers; /* threads that make batches ahead; 0: one; MANTA_NONE: none, the caller reads */
    int read_ahead; /* batches made ahead; 0: the dataset's prefetch(), or 2 */
} manta_loader_options;

/* One batch. The arrays lie in buffers that the loader uses again. */
typedef struct manta_batch {
    int64_t epoch, step;
    int64_t first; /* index of its first sample, running on across epochs */
    int64_t count; /* samples in it: in these arrays */
    int n;
    const manta_column *columns;
} manta_batch;

/* The column called `name`; NULL when there is none. */
MANTA_API const manta_array *manta_batch_find(const manta_batch *b, const char *name);

/* Where a loader is: what to keep in a checkpoint. */
typedef struct manta_position {
    int64_t epoch, step; /* of the batch that comes next; step may be the number of steps: epoch over */
    int64_t sample; /* first sample of that step; informative, ignored when set */
} manta_position;

/* Opens a loader at epoch 0, step 0. Takes a reference of its own to d.
 * Reports the dataset's latched error. Every buffer is made here.
 * options may be NULL. *out untouched on failure. */
MANTA_API manta_status manta_loader_open(manta_dataset *d, const manta_loader_options *options,
                                         manta_loader **out) MANTA_MUST_USE;

/* Gives the next batch; its arrays stay until the next call with this loader.
 * False at the end of an epoch (the call after it begins the next one) and on
 * failure, which manta_loader_status() tells apart. */
MANTA_API bool manta_loader_next(manta_loader *l, manta_batch *batch);

/* Why next() said false: MANTA_OK for the end of an epoch, else the error,
 * raised on this thread. A seek clears it. */
MANTA_API manta_status manta_loader_status(manta_loader *l) MANTA_MUST_USE;

/* The next batch will be (epoch, step). Reads nothing of what lies before,
 * unless a generator is among the sources. MANTA_EINVAL beyond the epoch. */
MANTA_API manta_status manta_loader_seek(manta_loader *l, int64_t epoch, int64_t step) MANTA_MUST_USE;
MANTA_API void manta_loader_position(const manta_loader *l, manta_position *out);
MANTA_API manta_status manta_loader_set_position(manta_loader *l, const manta_position *p) MANTA_MUST_USE;

/* Samples [lo, hi) of the batch (epoch, step), read by the calling thread into
 * buffers of their own: valid until the next fetch. Does not move the loader.
 * hi beyond the batch is cut; an empty range gives count 0. `first` is the
 * index of sample lo. MANTA_EINVAL when there is no such batch. */
MANTA_API manta_status manta_loader_fetch(manta_loader *l, int64_t epoch, int64_t step, int64_t lo,
                                          int64_t hi, manta_batch *batch) MANTA_MUST_USE;

/* Batches of an epoch, or MANTA_FOREVER_COUNT or MANTA_UNKNOWN_COUNT. */
MANTA_API int64_t manta_loader_steps(const manta_loader *l);

/* Samples of an epoch, or as above. */
MANTA_API int64_t manta_loader_samples(const manta_loader *l);

/* The different sizes that batches may have, largest first, into sizes[0..cap);
 * returns how many there are. For a generator of unknown length any size up to
 * the batch's may come last; the largest alone is given. */
MANTA_API int manta_loader_batch_sizes(const manta_loader *l, int64_t *sizes, int cap);

/* The columns of a sample as batches bring them; valid while l lives. */
MANTA_API int manta_loader_columns(const manta_loader *l, const manta_column_spec **columns);

/* Ends the readers and gives everything back. When it returns no function of
 * the user's runs any more. Accepts NULL. */
MANTA_API void manta_loader_close(manta_loader *l);

#ifdef __cplusplus
}
#endif
#endif
