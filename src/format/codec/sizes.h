/* sizes.h - the sizes at which format/ changes its ways, in one place: what is read, gathered or kept open at
 * once, and what is done on a thread of its own. None of them shows in what is read. Each is tested one below,
 * at, one above and ten times (tests/unit/format/sizes_test.c).
 *
 * What a file may have at most, before it is refused, stands with the reader that refuses it; bounds on what
 * is unpacked are in limit.h. */
#ifndef FORMAT_CODEC_SIZES_H
#define FORMAT_CODEC_SIZES_H

enum {
    /* elements.c: bytes that are gathered from strides before they are handed on. */
    ELEMENTS_CHUNK = 1 << 16,

    /* tfrecord.c: bytes that a reader fetches when it reads on. */
    TFRECORD_WINDOW = 512 << 10,
    /* tfrecord.c: bytes read at once while going through lengths. */
    TFRECORD_SCAN = 64 << 10,
    /* tfrecord.c: above that size of a record a call for each length takes less than the copy. */
    TFRECORD_SPARSE = 4 << 10,
    /* tfrecord.c: files that a reader keeps open. */
    TFRECORD_OPEN_FILES = 16,

    /* webdataset.c: shards that are kept open; those beyond are opened for each sample. */
    WEBDATASET_OPEN_SHARDS = 256,

    /* files.c: bytes of an IDX file from which on it is unpacked behind the caller's back; below, a thread
     * costs more than the work. */
    FILES_BEHIND = 1 << 20,

    /* csv.c: bytes in which a file's first record is looked for. */
    CSV_HEAD = 1 << 20,
    /* csv_fast.c: bytes read at once, they and their separators fit into the second cache; csv_records.c. */
    CSV_FAST_BLOCK = 256 << 10,
    CSV_BLOCK = 256 << 10,

    /* bundle_table.c: bytes of a block of the index, and entries between two that are written in full. */
    BUNDLE_BLOCK = 256 << 10,
    BUNDLE_INTERVAL = 16,
};

#endif
