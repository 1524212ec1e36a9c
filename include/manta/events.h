/* manta/events.h - event files, which TensorBoard shows.
 *
 * A run is a folder; a writer adds one file to it. Every call that adds
 * something hands one whole record to the system in one write, so a process
 * that is killed between two calls, or within one, leaves a file that readers
 * take to its last whole record. Nothing waits in memory; manta_events_flush()
 * is for machines that lose power.
 *
 *     manta_events *e;
 *     MANTA_TRY(manta_events_open("runs/a", NULL, &e));
 *     MANTA_TRY(manta_events_scalar(e, "loss", step, 0.31));
 *     manta_events_close(e);
 *
 * A run that goes on after an interruption opens the same folder with the
 * first step it will do (again): what an earlier writer left at and beyond that
 * step is then purged by readers, and every step is seen once.
 *
 * Threads: one at a time. */
#ifndef MANTA_EVENTS_H
#define MANTA_EVENTS_H

#include <manta/array.h>
#include <manta/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_events manta_events;

/* Zeroed memory is the default. */
typedef struct manta_events_options {
    int64_t first_step; /* > 0: the run goes on, and this is the first step it writes */
    bool restart; /* the run begins again with first_step, also when that is 0 */
    const char *suffix; /* ends the file's name, as ".v2"; NULL: nothing */
} manta_events_options;

/* Creates the folder where it is missing, and a file in it whose name sorts
 * behind those of all earlier writers. options may be NULL.
 * *out: owned, manta_events_close(). Untouched on failure. */
MANTA_API manta_status manta_events_open(const char *folder, const manta_events_options *options,
                                         manta_events **out) MANTA_MUST_USE;
MANTA_API const char *manta_events_path(const manta_events *e); /* of the file; borrowed */

/* A number at a step. The curve called `tag` has one per step. */
MANTA_API manta_status manta_events_scalar(manta_events *e, const char *tag, int64_t step,
                                           double value) MANTA_MUST_USE;
/* Several numbers of one step as one record: readers see all or none. */
MANTA_API manta_status manta_events_scalars(manta_events *e, int64_t step, int n, const char *const *tags,
                                            const double *values) MANTA_MUST_USE;

/* How the elements of an array are distributed, in 30 buckets of equal width
 * as Keras makes them. NaN and infinity are left out. Any dtype and strides. */
MANTA_API manta_status manta_events_histogram(manta_events *e, const char *tag, int64_t step,
                                              const manta_array *values) MANTA_MUST_USE;

/* Text, which is shown as Markdown. */
MANTA_API manta_status manta_events_text(manta_events *e, const char *tag, int64_t step,
                                         const char *text) MANTA_MUST_USE;

/* Images: (height, width), (height, width, channels) or (n, height, width,
 * channels) with 1, 3 or 4 channels; u8, or f32 in [0,1]; row-major. Several
 * become tag/0, tag/1, ... */
MANTA_API manta_status manta_events_image(manta_events *e, const char *tag, int64_t step,
                                          const manta_array *image) MANTA_MUST_USE;

/* The graph of a built model: a node per operation, grouped by layer. */
MANTA_API manta_status manta_events_graph(manta_events *e, const manta_model *m) MANTA_MUST_USE;

/* A setting of the run, for the table of hyper-parameters. */
typedef enum manta_hparam_kind {
    MANTA_HPARAM_NUMBER,
    MANTA_HPARAM_TEXT,
    MANTA_HPARAM_BOOL
} manta_hparam_kind;
typedef struct manta_hparam {
    const char *name;
    manta_hparam_kind kind;
    double number; /* MANTA_HPARAM_BOOL: 0 or not */
    const char *text;
} manta_hparam;

/* The settings of this run and the tags of the scalars it is judged by. Once, at the start. */
MANTA_API manta_status manta_events_hparams(manta_events *e, int n, const manta_hparam *hparams,
                                            int n_metrics, const char *const *metric_tags) MANTA_MUST_USE;
/* How the run ended. */
MANTA_API manta_status manta_events_hparams_end(manta_events *e, bool success) MANTA_MUST_USE;

/* Returns when everything is on the disk. */
MANTA_API manta_status manta_events_flush(manta_events *e) MANTA_MUST_USE;
MANTA_API void manta_events_close(manta_events *e); /* accepts NULL */

/* ---- reading ---------------------------------------------------------------- */

typedef enum manta_events_kind {
    MANTA_EVENTS_SCALAR,
    MANTA_EVENTS_HISTOGRAM,
    MANTA_EVENTS_TEXT,
    MANTA_EVENTS_IMAGE,
    MANTA_EVENTS_HPARAMS,
    MANTA_EVENTS_OTHER /* audio, tensors, what plugins write */
} manta_events_kind;

typedef struct manta_events_point {
    int64_t step;
    double wall_s; /* since 1970 */
    double value; /* the value of a scalar */
} manta_events_point;

typedef struct manta_events_tag {
    const char *name; /* borrowed from the log */
    manta_events_kind kind;
    const char *plugin; /* name of the plugin that shows the tag, "" when the file does not say */
    int64_t count; /* points that are left after purging, in the order written */
    const manta_events_point *points;
    const char *text; /* MANTA_EVENTS_TEXT: the last one; else NULL */
} manta_events_tag;

typedef struct manta_events_log manta_events_log;

/* Reads one event file, or all of a folder in the order of their names, as
 * TensorBoard does: with its rules for purging, and to the last whole record.
 * *out: owned, manta_events_log_free(). MANTA_ENOENT no event file there;
 * MANTA_ECORRUPT the first record is none. */
MANTA_API manta_status manta_events_read(const char *path, manta_events_log **out) MANTA_MUST_USE;
MANTA_API void manta_events_log_free(manta_events_log *l); /* accepts NULL */

MANTA_API int manta_events_tags(const manta_events_log *l);
MANTA_API manta_events_tag manta_events_tag_at(const manta_events_log *l,
                                               int i); /* in order of first appearance */
MANTA_API int64_t manta_events_records(const manta_events_log *l); /* whole ones, of all files */
MANTA_API int64_t manta_events_purged(const manta_events_log *l); /* points that a restart took back */
MANTA_API bool manta_events_has_graph(const manta_events_log *l);
/* Where reading ended early: file and offset with the reason; NULL: nowhere. */
MANTA_API const char *manta_events_damage(const manta_events_log *l);

#ifdef __cplusplus
}
#endif
#endif
