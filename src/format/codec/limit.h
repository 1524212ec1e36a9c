/* limit.h - how much packed bytes may become.
 *
 * Deflate packs zeros a thousand to one, zstd thirty times better: a file that came by
 * mail must not fill the memory of whoever looks at it. So what is unpacked is bounded
 * before it is allocated, by a size and by a ratio:
 *
 *     up to 256 MiB            as the packing allows: zeros and one-hot labels are honest
 *     beyond that              100 times what lies in the file
 *     never                    more than the memory of this machine
 *
 * MANTA_UNPACK_MAX=SIZE in the environment (64M, 2G, ...) takes the place of all three:
 * up to SIZE whatever the ratio, nothing beyond. The sentence says so when a bound is
 * reached, with MANTA_ENOMEM. */
#ifndef FORMAT_CODEC_LIMIT_H
#define FORMAT_CODEC_LIMIT_H

#include <stdint.h>

#include "base/status.h"

enum { LIMIT_RATIO = 100 };

#define LIMIT_ANY_RATIO ((uint64_t)256 << 20)

/* Refuses that `packed` bytes become `size`; `what` is what sentences call them. */
manta_status limit_unpacked(const char *what, uint64_t packed, uint64_t size);

/* The most that `packed` bytes may become: for what is unpacked without knowing to how
 * much. Beyond it limit_unpacked() has the sentence. */
uint64_t limit_most(uint64_t packed);

#endif
