/* data/digest.h - whether two processes have the same data, found out from a part of it. */
#ifndef DATA_DIGEST_H
#define DATA_DIGEST_H

#include <manta/data.h>

enum { DATA_DIGEST_ELEMENTS = 16 }; /* that are read, of however many there are */

/* Digests the columns, their names, types and shapes, the number of elements, and the bytes
 * of DATA_DIGEST_ELEMENTS elements of the first pass: the first, the last, and others that
 * `key` and the number of elements choose. Of a batch its first row is read. A generator is
 * not asked for anything, since reading it may cost what a whole pass does. */
manta_status data_digest(manta_dataset *d, uint64_t key, uint64_t *out) MANTA_MUST_USE;

#endif
