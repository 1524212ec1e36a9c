/* h5_out.h - HDF5 files, written as a stream.
 *
 * A tree of groups and contiguous datasets is described first; then every
 * address is known, and the bytes can be given to a sink, large arrays straight
 * from where they lie. Groups may have attributes of text. */
#ifndef FORMAT_HDF5_H5_OUT_H
#define FORMAT_HDF5_H5_OUT_H

#include <manta/array.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/status.h"
#include "base/vec.h"

typedef struct h5_node h5_node;

typedef struct h5_out {
    VEC(h5_node *) nodes; /* owned; the root first */
    MAP(int) paths; /* full path without a leading slash -> node */
    VEC(uint64_t) collections; /* where the texts of attributes are, once laid out */
    buf head; /* all but the datasets' bytes, once laid out */
    uint64_t size;
} h5_out;

/* Adds the group at `path` ("layers/dense/vars"), and those above it, unless they are there. */
void h5_out_group(h5_out *o, const char *path);

/* Whether a dataset can be added at `path`: nothing is there, and only groups are above it. */
bool h5_out_takes(h5_out *o, const char *path);

/* Adds a dataset and the groups above it. The array is float32 or int64,
 * row-major, and must stay until the file is written. The path must be new. */
void h5_out_dataset(h5_out *o, const char *path, const manta_array *a);

/* Gives the group at `path`, which is made where missing, the attribute `name`: one text, or a list of up to
 * H5_OUT_TEXTS, an empty one as numbers, which is how NumPy and so Keras have it. */
enum { H5_OUT_TEXTS = 4000 }; /* HDF5 has room for 64 kB in an attribute, of which a text takes 16 bytes */
void h5_out_text(h5_out *o, const char *path, const char *name, const char *text);
void h5_out_texts(h5_out *o, const char *path, const char *name, size_t n, char *const *texts);

/* Places everything; sets o->size, the bytes of the file. Call once, last. */
void h5_out_layout(h5_out *o);

/* Gives the bytes of the file to `sink`, in order; stops at its first failure. */
typedef manta_status (*h5_sink)(void *ctx, const void *data, size_t n);
manta_status h5_out_emit(const h5_out *o, h5_sink sink, void *ctx) MANTA_MUST_USE;

/* Writes them to the file at `path`, which appears whole or not at all. */
manta_status h5_out_save(const h5_out *o, const char *path) MANTA_MUST_USE;

void h5_out_release(h5_out *o); /* accepts zeroed memory */

#endif
