/* pt.h - what torch.save() writes: a zip archive with a pickle that describes
 * tensors, and one member per storage they are views of.
 *
 *   R/data.pkl  R/byteorder  R/version  R/data/0  R/data/1 ...      R: any one name
 *
 * Read with the operations and names of torch.load(weights_only=True) only;
 * what a pickle names beyond them is refused, and nothing is ever run. Written
 * so that torch.load() takes it in that mode and with mmap=True: members are
 * stored, storages begin at multiples of 64. */
#ifndef FORMAT_TORCH_PT_H
#define FORMAT_TORCH_PT_H

#include <manta/data.h>
#include <manta/file.h>

#include "base/vec.h"
#include "format/codec/input.h"
#include "format/codec/zip.h"

typedef struct pt_storage {
    const uint8_t *bytes; /* into the archive, or into `owned` */
    void *owned;
    manta_dtype dtype; /* MANTA_DTYPE_COUNT: none of ours */
    const char *type; /* "torch.ShortStorage"; static */
    int64_t n; /* elements */
} pt_storage;

typedef struct pt_tensor {
    char *name; /* owned: keys of nested dictionaries, joined by dots */
    int storage;
    manta_array
        view; /* of the storage, within it; strides as the file says. ndim beyond Manta's: data NULL */
} pt_tensor;

typedef struct pt_file {
    input in;
    zip z;
    VEC(pt_storage) storages;
    VEC(pt_tensor) tensors; /* in the order of the dictionary */
    VEC(manta_note) notes; /* numbers and texts beside the tensors ("epoch"), as text; owned */
} pt_file;

/* Whether the first bytes are of such a file, also of the kind that is refused
 * (torch before 1.6). */
bool pt_is(const uint8_t *head, size_t n);

/* Reads the file at `path`. MANTA_ECORRUPT what is wrong; MANTA_EPERM a name or an operation that
 * describes no tensor; MANTA_EUNSUPPORTED a kind of file that is not read.
 * *out: give back with pt_release(); untouched on failure. */
manta_status pt_read(const char *path, pt_file *out) MANTA_MUST_USE;
/* Reads a file whose bytes are `in`, which is taken on success; fails as pt_read() does. */
manta_status pt_parse(input *in, pt_file *out) MANTA_MUST_USE;
void pt_release(pt_file *f); /* accepts zeroed memory */

/* Tensor i as a view, any strides, aligned for its type. MANTA_EUNSUPPORTED a type Manta has not, by name. */
manta_status pt_array(const pt_file *f, int i, manta_array *out) MANTA_MUST_USE;

/* Writes a dictionary of tensors so that the file appears whole or not at all.
 * The same input makes the same bytes. MANTA_EINVAL two of one name. */
manta_status pt_write(const char *path, int n, const manta_column *columns) MANTA_MUST_USE;

#endif
