/* tar.h - the members of a tar archive, one after the other.
 *
 *     header, 512 bytes | contents, padded to 512 | header | ... | two blocks of zeros
 *
 * Read: ustar with its prefix, the older v7, GNU's long names ('L') and large
 * sizes, and the path and size of pax headers ('x'). Every header's checksum is
 * checked and every size compared with the bytes that follow. Only regular files
 * are members; folders, links and devices are passed over. Names are text and
 * never reach the file system. */
#ifndef FORMAT_WEBDATASET_TAR_H
#define FORMAT_WEBDATASET_TAR_H

#include <stdbool.h>

#include "base/buf.h"
#include "format/codec/seek.h"

typedef struct tar_member {
    const char *name; /* borrowed: until the next call */
    uint64_t at, size; /* offset and size of the member's contents, which lie inside the file */
} tar_member;

typedef struct tar {
    const seek_file *f;
    uint64_t at; /* offset of the next header */
    buf name; /* name of the next member, from a long name or a pax header */
    bool has_name, has_size;
    uint64_t size; /* size of the next member, from a pax header */
    char plain[257]; /* a name that stood in the header */
    uint8_t window[16384]; /* the bytes that were read last, so that small members cost no call each */
    uint64_t window_at;
    size_t window_n;
} tar;

/* Begins at the first member of f, which must outlive it. */
void tar_init(tar *t, const seek_file *f);

/* The next member; *end and no member when there is none any more.
 * MANTA_ECORRUPT, with the offset; MANTA_EUNSUPPORTED a sparse member. */
manta_status tar_next(tar *t, tar_member *m, bool *end);

void tar_release(tar *t);

/* Whether f begins as a gzip file does. */
manta_status tar_is_packed(const seek_file *f, bool *out);

/* The contents of the gzip file f, in memory. *out: to be closed. */
manta_status tar_unpack(const seek_file *f, seek_file *out);

#endif
