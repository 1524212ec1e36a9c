/* zip.h - zip archives in memory, as far as .npz and .keras need them: stored
 * and deflated members, zip64 sizes. Encryption and splitting are refused. */
#ifndef FORMAT_CODEC_ZIP_H
#define FORMAT_CODEC_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "os/file.h"

typedef struct zip_entry {
    char *name; /* owned by the zip */
    int method; /* 0 stored, 8 deflated */
    uint32_t crc;
    size_t at; /* offset of the packed bytes */
    size_t packed, size;
} zip_entry;

typedef struct zip {
    const char *path; /* borrowed, for sentences */
    const uint8_t *data;
    size_t size;
    int n;
    zip_entry *entries; /* owned */
} zip;

/* Reads the directory of an archive; `data` must outlive *out.
 * MANTA_ECORRUPT with offset and what was expected; MANTA_ENOMEM when its members would
 * unpack to more than limit.h allows. */
manta_status zip_parse(const char *path, const uint8_t *data, size_t size, zip *out);
void zip_release(zip *z); /* accepts zeroed memory */

const zip_entry *zip_find(const zip *z, const char *name); /* NULL when there is none */

/* The bytes of a member, checked against its checksum. *bytes points into the
 * archive when it is stored, else to *owned (mem_try_free; NULL when stored). */
manta_status zip_extract(const zip *z, const zip_entry *e, const uint8_t **bytes, void **owned);

/* ---- writing: stored members, one after the other ------------------------------- */

typedef struct zip_writer {
    file_writer *w; /* borrowed */
    uint64_t at; /* bytes written */
    buf directory;
    uint64_t n;
} zip_writer;

/* Begins a member whose size and crc-32 are known; its bytes follow through
 * zip_write(), in pieces. */
manta_status zip_begin(zip_writer *z, const char *name, uint64_t size, uint32_t crc);
manta_status zip_write(zip_writer *z, const void *data, size_t n);
/* A member whose bytes are all there. */
manta_status zip_add(zip_writer *z, const char *name, const void *data, size_t n);
manta_status zip_end(zip_writer *z); /* writes the directory */
void zip_writer_release(zip_writer *z); /* accepts zeroed memory */

/* Sinks for what is made in pieces: first for its sum (crc: a uint32_t), then for its bytes (z: a zip_writer). */
manta_status zip_to_sum(void *crc, const void *data, size_t n);
manta_status zip_to_member(void *z, const void *data, size_t n);

#endif
