/* crc32c.h - the Castagnoli checksum, which checkpoints, TFRecord and
 * TensorBoard files carry. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of the bytes summed so far (0 for none) followed by n more:
 * crc32c(crc32c(0, a, n), b, m) is that of a and b joined. Uses the
 * processor's instruction where there is one. */
uint32_t crc32c(uint32_t crc, const void *data, size_t n);

/* The checksum that crc32c() gives, by tables alone; for tests and for processors without
 * the instruction. */
uint32_t crc32c_table(uint32_t crc, const void *data, size_t n);

#endif
