/* elements.h - the elements of an array in row-major order, however it lies in
 * memory: what every writer of arrays needs. */
#ifndef FORMAT_CODEC_ELEMENTS_H
#define FORMAT_CODEC_ELEMENTS_H

#include <manta/array.h>

#include "base/status.h"
#include "os/file.h"

typedef manta_status elements_fn(void *ctx, const void *data, size_t n);

/* Gives all elements to `to`, in as many pieces as it likes: one, and no copy,
 * when they lie row-major already. Ends with the first failure of `to`. */
manta_status elements_each(const manta_array *a, elements_fn *to, void *ctx) MANTA_MUST_USE;
/* Writes them all to a file. */
manta_status elements_to_file(const manta_array *a, file_writer *w) MANTA_MUST_USE;

#endif
