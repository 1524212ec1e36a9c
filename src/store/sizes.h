/* sizes.h - the sizes at which store/ changes its ways, in one place. Each is tested one
 * below, at, one above and ten times (tests/unit/store/sizes_test.c). */
#ifndef STORE_SIZES_H
#define STORE_SIZES_H

#include <stddef.h>

/* store.c: a process that makes little takes little. */
#define STORE_SEGMENT_FIRST ((size_t)1 << 20)
/* store.c: doubling ends here; larger objects get a segment of their own. */
#define STORE_SEGMENT_MOST ((size_t)64 << 20)
/* store.c: fewer bytes than this are possible for an object. */
#define STORE_OBJECT_LIMIT ((size_t)1 << 46)
/* spill_file.c: bytes that are copied, and summed, at a time. */
#define STORE_SPILL_CHUNK ((size_t)1 << 20)
/* extents.c: every block starts at, and is a multiple of, so many bytes. */
#define EXTENTS_ALIGN 64
/* refs.c: holders of an object that need no memory of their own. */
#define REFS_FEW 2

#endif
