/* npy.h - NumPy's .npy: one array with its dtype and shape.
 *
 *   \x93NUMPY  major minor  header length (u16, from version 2 on u32)
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  padded with spaces and a newline
 *   elements
 *
 * Read: versions 1 to 3, C and Fortran order, both byte orders, the dtypes
 * that have one of ours (b1 u1 i4 i8 f2 f4 f8; i1, i2, u2 become i32, u4
 * becomes i64, u8 becomes i64 when every value fits). Written: version 1. */
#ifndef FORMAT_ARRAY_NPY_H
#define FORMAT_ARRAY_NPY_H

#include "base/buf.h"
#include "format/codec/input.h"

bool npy_is(const uint8_t *data, size_t size);

/* *out: owned, its array row-major and in this machine's byte order.
 * MANTA_ECORRUPT with `name` and offset; MANTA_EUNSUPPORTED a dtype we have
 * nothing for; MANTA_ENAN unless allow_nan. */
manta_status npy_parse(const char *name, const uint8_t *data, size_t size, bool allow_nan, blob *out);

/* Adds the version 1 header of an array of a's dtype and shape to b. bfloat16,
 * which NumPy has not, is MANTA_EUNSUPPORTED. */
manta_status npy_header(const manta_array *a, buf *b);

#endif
