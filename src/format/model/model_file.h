/* model_file.h - the formats a model or its weights may lie in, and what a
 * reader fills in.
 *
 * A format is one const struct model_format, named in the table of
 * model_file.c. Its reader gets an empty manta_saved and adds to it; what was
 * added before a failure is given back by the caller. */
#ifndef FORMAT_MODEL_MODEL_FILE_H
#define FORMAT_MODEL_MODEL_FILE_H

#include <manta/file.h>

#include "base/map.h"
#include "base/status.h"
#include "base/vec.h"

/* How sure a probe is that a file is of its format. */
typedef enum model_match {
    MODEL_NO = 0,
    MODEL_NAME, /* the file is of this format by its name alone */
    MODEL_CONTENTS /* the file is of this format by its contents */
} model_match;

typedef struct model_format {
    const char *name, *about, *ending;
    const char *also; /* another ending in use, or NULL */
    bool has_model;
    /* head[0..n): the first bytes, up to MODEL_HEAD; n 0 when nothing can be read there (a folder, a prefix). */
    model_match (*probe)(const char *path, const uint8_t *head, size_t n);
    manta_status (*read)(const char *path, const manta_read_options *o, manta_saved *s);
    manta_status (*write)(const char *path, const manta_contents *c); /* optional: read only */
    manta_status (*outline)(const char *path, manta_outline *out); /* optional: the file lists no layers */
} model_format;

#define MODEL_HEAD 4096

extern const model_format model_keras, model_keras_config, model_weights_h5, model_weights_shards,
    model_legacy_h5, model_npz, model_safetensors, model_pt;

/* Whether `path` ends in `ending`, and has something before it. */
bool model_path_ends(const char *path, const char *ending);
/* Whether head is a zip archive whose first member's name contains `part`. */
bool model_head_is_zip(const uint8_t *head, size_t n, const char *part);

/* ---- what a reader fills in ---- */

typedef VEC(char *) model_texts;

typedef struct saved_memory {
    void (*release)(void *ctx);
    void *ctx;
} saved_memory;

struct manta_saved {
    const char *format; /* static */
    manta_model *model; /* owned, may be NULL */

    /* Compile settings. code MANTA_OK: the value beside it counts. */
    manta_error optimizer_error, losses_error, metrics_error;
    manta_optimizer optimizer;
    VEC(manta_loss) losses; /* names in `texts` */
    VEC(manta_metric) metrics;

    VEC(manta_column) arrays; /* names in `texts` */
    MAP(int) index; /* name -> array */
    VEC(manta_note) notes; /* notes, whose texts lie in `texts` */
    VEC(saved_memory) memory; /* the memory that arrays lie in */
    model_texts texts;
};

/* An empty one, of a format. */
manta_saved *saved_make(const model_format *f);

/* A copy of the text that lives as long as s. */
const char *saved_text(manta_saved *s, const char *text);

/* Adds an array whose memory s keeps already, or that lives as long as s. MANTA_EEXIST a second one of that name. */
manta_status saved_add(manta_saved *s, const char *name, const manta_array *a) MANTA_MUST_USE;
/* Keeps memory of mem_try() until s is freed. */
void saved_keep(manta_saved *s, void *memory);
/* Has release(ctx) called when s is freed. */
void saved_own(manta_saved *s, void (*release)(void *ctx), void *ctx);
/* Adds an array with memory of its own, undefined contents, and gives its view. MANTA_ENOMEM. */
manta_status saved_new_array(manta_saved *s, const char *name, manta_dtype t, int ndim, const int64_t *shape,
                             manta_array *out) MANTA_MUST_USE;
void saved_note(manta_saved *s, const char *name, const char *text);

/* The array called `name` of what is to be written; NULL when there is none. */
const manta_array *contents_find(const manta_contents *c, const char *name);

/* Fails unless s has every variable of m, of the right shape. */
manta_status saved_check(const manta_saved *s, const char *path, const manta_model *m) MANTA_MUST_USE;

#endif
