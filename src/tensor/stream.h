/* tensor/stream.h - results written past the caches.
 *
 * A store to a line that another core has read waits until that core has given
 * it up. Where the cores do not share a cache (a virtual machine's may lie on
 * two dies, and be moved between them while it runs), that costs more than the
 * arithmetic of a training step: mnist-cnn's activations were written at
 * 5 GB/s. Stores past the caches do not wait, and what is as large as this is
 * read from memory at full speed next time. Small results stay in the cache. */
#ifndef TENSOR_STREAM_H
#define TENSOR_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/stream.h"
#include "tensor/sizes.h"

enum { STREAM_LINE = 16 }; /* floats */

/* Whether `n` floats at p, in rows that begin `ld` apart, are to go past the caches. */
static inline bool stream_fits(const float *p, int64_t ld, int64_t n)
{
    return n >= STREAM_FROM && ld % STREAM_LINE == 0 && (uintptr_t)p % (STREAM_LINE * sizeof *p) == 0;
}

#endif
