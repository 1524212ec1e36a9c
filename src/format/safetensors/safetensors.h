/* safetensors.h - named arrays behind a JSON header.
 *
 *   u64 n | n bytes of JSON | data
 *   {"__metadata__":{"step":"3"}, "w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ...}
 *
 * Little endian, row-major, offsets from the start of the data. The tensors
 * cover the data without gap or overlap, so that no byte of a file is left for
 * something else.
 *
 * A file is accepted or refused as the official library does it, with these
 * exceptions, all refusals: a key that appears twice in an object, a name or
 * text with the character 0, a whole number beyond 2^63 - 1, and -0 where
 * nobody looks at it. A file with types or shapes that Manta has not is opened,
 * so that it can be listed; only asking for such a tensor fails. */
#ifndef FORMAT_SAFETENSORS_SAFETENSORS_H
#define FORMAT_SAFETENSORS_SAFETENSORS_H

#include <manta/file.h>

#include "base/status.h"
#include "os/file.h"

#define SAFETENSORS_MAX_HEADER 100000000

typedef struct safetensors_tensor {
    char *name; /* owned */
    const char *type; /* "F32", as the file spells it; static */
    bool known; /* array.dtype is Manta's */
    int64_t *shape; /* owned; may have more axes than Manta's arrays */
    int ndim;
    uint64_t begin, end; /* offsets in the data */
    void *copy; /* owned: the elements, where the file has them at an address no pointer may have */
} safetensors_tensor;

/* A text by name, to read and to write. */
typedef struct safetensors_pair {
    const char *key, *value;
} safetensors_pair;

typedef struct safetensors {
    char *path; /* owned; for sentences */
    uint8_t *file; /* the whole of it */
    size_t size, data; /* bytes in all, and before the data */
    bool mapped, borrowed; /* how `file` is given back */
    int n;
    safetensors_tensor *tensors; /* in the order of the data; owned */
    int n_metadata;
    safetensors_pair *metadata; /* owned, texts too */
} safetensors;

/* Whether the first bytes look like such a file. */
bool safetensors_is(const uint8_t *head, size_t n);

/* Reads a file to memory. MANTA_ECORRUPT with what is wrong and where.
 * *out: give back with safetensors_release(); untouched on failure. */
manta_status safetensors_read(const char *path, safetensors *out) MANTA_MUST_USE;

/* Opens a file and reads no more than its header: tensors are pages of the file,
 * private to this process when written to. For files that nobody cuts short
 * meanwhile: a page that is gone ends the program. */
manta_status safetensors_map(const char *path, safetensors *out) MANTA_MUST_USE;

/* Reads a file whose bytes are data[0..size), which must outlive *out; sentences call
 * it `path`. */
manta_status safetensors_parse(const char *path, uint8_t *data, size_t size, safetensors *out) MANTA_MUST_USE;

void safetensors_release(safetensors *s); /* accepts zeroed memory */

/* Tensor i as a view into s, aligned for its type. MANTA_EUNSUPPORTED its type,
 * by name, or more than MANTA_MAX_DIMS axes; MANTA_ENOMEM. */
manta_status safetensors_array(safetensors *s, int i, manta_array *out) MANTA_MUST_USE;

int safetensors_find(const safetensors *s, const char *name); /* -1 when there is none */
const char *safetensors_note(const safetensors *s, const char *key); /* NULL when there is none; borrowed */

/* Writes arrays and texts so that the file appears whole or not at all. The
 * same input makes the same bytes: tensors by size of their elements, largest
 * first, then by name, texts in the order given; the data begin at a multiple
 * of 64. Arrays of any strides go to disk without a copy in memory.
 * MANTA_EINVAL two of one name, a name that is reserved or not UTF-8. */
manta_status safetensors_write(const char *path, int n, const manta_column *columns, int n_metadata,
                               const safetensors_pair *metadata) MANTA_MUST_USE;

/* Writes the file that safetensors_write() would, to a writer that is open; committing
 * it is left to the caller. Sentences call the file `path`. */
manta_status safetensors_write_to(file_writer *w, const char *path, int n, const manta_column *columns,
                                  int n_metadata, const safetensors_pair *metadata) MANTA_MUST_USE;

/* Fails as safetensors_write() would for these names, dtypes and shapes; looks at no
 * element. */
manta_status safetensors_check(const char *path, int n, const manta_column *columns) MANTA_MUST_USE;

/* The arrays and notes of a file that was read already, as manta_file_read()
 * gives them. Takes data, of mem_try(), on failure too. */
manta_status safetensors_saved(const char *path, uint8_t *data, size_t size,
                               manta_saved **out) MANTA_MUST_USE;

#endif
