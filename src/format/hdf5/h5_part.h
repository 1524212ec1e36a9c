/* h5_part.h - the parts of the HDF5 reader, as they see each other.
 *
 *   h5.c           files: superblock, paths
 *   h5_dataset.c   datasets: their description, their elements
 *   h5_text.c      attributes that hold text
 *   h5_links.c     what a group holds, in all three forms it may have
 *   h5_object.c    object headers: the messages that describe an object
 *   h5_type.c      shapes and types of elements, and their conversion
 *   h5_chunk.c     where the pieces of a chunked dataset lie
 *   h5_filter.c    how those pieces were packed
 *   h5_tree.c      B-trees of version 2
 *   h5_heap.c      heaps: of names, of texts, and the fractal one
 *   h5_bytes.c     numbers out of bytes, checksums
 *
 * What every part keeps to:
 *  1. No address and no size is used before it was compared with the bytes that
 *     are there. All reading goes through h5_in.
 *  2. Nothing is followed without end: levels of trees must fall by one, and a
 *     walk visits no more nodes, links or chunks than the file has room for.
 *  3. Memory is bounded by a small multiple of the file's size, but for packed
 *     elements, which deflate can make 1032 times as large. */
#ifndef FORMAT_HDF5_H5_PART_H
#define FORMAT_HDF5_H5_PART_H

#include "base/map.h"
#include "format/hdf5/h5.h"

#define H5_NOWHERE UINT64_MAX

enum { H5_MAX_RANK = 32 };

typedef struct h5_link {
    const char *name; /* in the file; no terminator */
    size_t n;
    uint64_t to; /* object header; H5_NOWHERE of a link that is not hard */
} h5_link;

/* Of one group, sorted by name. */
typedef struct h5_links {
    h5_link *at;
    size_t n, cap; /* as a VEC */
} h5_links;

struct h5_file {
    char *path;
    const uint8_t *data; /* from the superblock on, where addresses count from */
    size_t size;
    int address_size, length_size; /* bytes that an address and a length take */
    uint64_t root;
    MAP_U64(h5_links) groups; /* by object header: what was listed once */
    size_t n_links, n_nodes, name_bytes; /* links, nodes and bytes of names of all groups listed so far */
    h5_file *next; /* joined to this one; owned */
    uint64_t unpacked; /* bytes that were allocated for elements so far */
};

/* ---- h5.c ---- */

/* The header of the object at `at`, by hard links; H5_NOWHERE when there is none. */
manta_status h5_object_at(h5_file *f, const char *at, uint64_t *out) MANTA_MUST_USE;

/* ---- h5_bytes.c ---- */

/* Bytes being read from the front. What reaches beyond the end reads as 0 and leaves a mark. */
typedef struct h5_in {
    const h5_file *f;
    const uint8_t *p;
    size_t n;
    bool over;
} h5_in;

/* The n bytes at `at`. MANTA_ECORRUPT, naming `what`, when they are not all there. */
manta_status h5_at(const h5_file *f, uint64_t at, uint64_t n, const char *what, h5_in *out) MANTA_MUST_USE;
/* All that lies from `at` on. */
manta_status h5_from(const h5_file *f, uint64_t at, const char *what, h5_in *out) MANTA_MUST_USE;
h5_in h5_bytes(const h5_file *f, const uint8_t *p, size_t n);

uint64_t h5_take(h5_in *in, size_t bytes); /* little-endian, up to 8 */
int h5_take_int(h5_in *in, size_t bytes); /* up to 2 */
uint64_t h5_take_address(h5_in *in); /* H5_NOWHERE when undefined */
uint64_t h5_take_length(h5_in *in);
const uint8_t *h5_skip(h5_in *in, size_t n); /* the bytes skipped; NULL when there are fewer */
bool h5_take_magic(h5_in *in, const char *four); /* whether these four are next */

/* Fails when `in` was read beyond its end. */
manta_status h5_whole(const h5_in *in, const char *what) MANTA_MUST_USE;

/* That the n bytes at p end in the checksum of those before it. */
manta_status h5_check_sum(const h5_file *f, const uint8_t *p, size_t n, const char *what) MANTA_MUST_USE;

/* The sentence: the file, the offset of p, what is wrong there. */
manta_status h5_bad(const h5_file *f, const uint8_t *p, const char *fmt, ...) MANTA_PRINTF(3, 4);
manta_status h5_lacks(const h5_file *f, const uint8_t *p, const char *fmt, ...) MANTA_PRINTF(3, 4);

/* Bytes that HDF5 gives a number no greater than `limit`. */
size_t h5_bytes_for(uint64_t limit);
int h5_log2(uint64_t v); /* index of the highest bit that is set; 0 for 0 */

/* ---- h5_object.c ---- */

enum {
    H5_SPACE = 0x01,
    H5_LINK_INFO = 0x02,
    H5_TYPE = 0x03,
    H5_FILL = 0x05,
    H5_LINK = 0x06,
    H5_EXTERNAL = 0x07,
    H5_LAYOUT = 0x08,
    H5_FILTERS = 0x0b,
    H5_ATTRIBUTE = 0x0c,
    H5_SYMBOLS = 0x11,
    H5_ATTRIBUTE_INFO = 0x15,
};

typedef struct h5_message {
    int type;
    bool shared; /* the data say where the message really is */
    const uint8_t *data;
    size_t size;
} h5_message;

typedef VEC(h5_message) h5_messages;

/* The messages of the object whose header is at `at`, continuations included. Give back with vec_release(). */
manta_status h5_object_read(const h5_file *f, uint64_t at, h5_messages *out) MANTA_MUST_USE;
const h5_message *h5_message_find(const h5_messages *m, int type); /* NULL when there is none */

typedef struct h5_type h5_type;
typedef struct h5_space h5_space;

typedef struct h5_attribute {
    h5_in type, space, data;
    bool type_shared;
} h5_attribute;

/* The attribute `name` among an object's messages or in its heap. */
manta_status h5_attribute_find(const h5_file *f, const h5_messages *m, const char *name, bool *found,
                               h5_attribute *out) MANTA_MUST_USE;

/* The type that a message holds, or the one it leads to. */
manta_status h5_type_of(const h5_file *f, h5_in in, bool shared, h5_type *out) MANTA_MUST_USE;

/* ---- h5_text.c ---- */

/* Adds the texts of an attribute of an object; *found says whether it is there. */
manta_status h5_attribute_texts(const h5_file *f, const char *at, const h5_messages *m, const char *name,
                                size_t max, h5_names *out, bool *found) MANTA_MUST_USE;

/* ---- h5_type.c ---- */

enum { H5_FIXED = 0, H5_FLOAT = 1, H5_STRING = 3, H5_OPAQUE = 5, H5_ENUM = 8, H5_VARIABLE = 9 };

struct h5_type {
    int class; /* one of the above, or another */
    size_t size;
    bool big; /* the highest byte first */
    bool is_signed;
    bool is_plain; /* a number that takes all bits of its size; floats are IEEE 754's or bfloat16 */
    bool is_bool; /* h5py's: an enumeration of FALSE and TRUE in one byte */
    bool is_text; /* whether an H5_VARIABLE is a string */
    bool spaces; /* whether an H5_STRING is filled up with spaces */
    manta_dtype dtype; /* dtype of a plain number */
};

struct h5_space {
    bool none; /* no elements at all */
    int ndim;
    uint64_t dims[H5_MAX_RANK], most[H5_MAX_RANK];
};

manta_status h5_type_parse(const h5_file *f, h5_in in, h5_type *out) MANTA_MUST_USE;
manta_status h5_space_parse(const h5_file *f, h5_in in, h5_space *out) MANTA_MUST_USE;

/* Whether elements lie in the file as dtype t has them in memory. */
bool h5_type_as_stored(const h5_type *type, manta_dtype t);
/* Converts n elements from `from` to dtype t at `to`, which may be the same place when sizes are equal.
 * MANTA_EUNSUPPORTED a number that t cannot hold. */
manta_status h5_type_convert(const h5_file *f, const char *at, const h5_type *type, const uint8_t *from,
                             manta_dtype t, void *to, size_t n) MANTA_MUST_USE;

/* ---- h5_links.c ---- */

/* What the group with its header at `at` holds; *out is NULL when it is no group. Borrowed: until the next call. */
manta_status h5_links_of(h5_file *f, uint64_t at, const h5_links **out) MANTA_MUST_USE;
const h5_link *h5_links_find(const h5_links *links, const char *name, size_t n);

/* ---- h5_chunk.c, h5_filter.c ---- */

typedef struct h5_filter {
    int id;
    size_t element; /* bytes of an element, for shuffle */
} h5_filter;

enum { H5_MAX_FILTERS = 32, H5_DEFLATE = 1, H5_SHUFFLE = 2, H5_FLETCHER32 = 3 };

typedef struct h5_filters {
    int n;
    h5_filter at[H5_MAX_FILTERS];
} h5_filters;

/* MANTA_EUNSUPPORTED a filter that is none of the three. */
manta_status h5_filters_parse(const h5_file *f, const char *at, h5_in in, h5_filters *out) MANTA_MUST_USE;

/* Undoes the filters that `mask` does not leave out: from the n bytes at `from` come exactly `size` bytes
 * at `to`. work: memory of size + H5_FILTER_ROOM bytes; `to` has that size too. */
enum { H5_FILTER_ROOM = 4 * H5_MAX_FILTERS };
manta_status h5_filters_undo(const h5_file *f, const h5_filters *filters, unsigned mask, const uint8_t *from,
                             size_t n, uint8_t *to, uint8_t *work, size_t size) MANTA_MUST_USE;

typedef struct h5_chunk {
    uint64_t at, size; /* bytes in the file */
    uint64_t place; /* index of the chunk, row-major over the grid of chunks */
    unsigned mask; /* filters left out */
} h5_chunk;

/* How a chunked dataset is cut. */
typedef struct h5_chunking {
    int ndim;
    uint64_t dims[H5_MAX_RANK]; /* sizes of one chunk */
    uint64_t grid[H5_MAX_RANK]; /* chunks along each dimension of the dataset */
    uint64_t wide[H5_MAX_RANK]; /* chunks along each dimension at its largest; H5_NOWHERE: without end */
    bool cut[H5_MAX_RANK]; /* the last chunk reaches beyond the dataset's edge */
    uint64_t n; /* chunks in the grid */
    uint64_t stored; /* bytes of all chunks in the file */
    size_t bytes; /* bytes of one chunk, unpacked */
    size_t element;
    bool plain_edge; /* chunks that reach beyond the edge are not packed */
    int index; /* kind of index; 0: B-tree of version 1 */
    h5_in info; /* the part of the layout message that describes the index */
    uint64_t root; /* address of the index */
    VEC(h5_chunk) chunks;
} h5_chunking;

/* The layout message from behind its class on; version is 3, 4 or 5. The chunks are found, no byte of them is
 * read. Give back with vec_release(&out->chunks), also after a failure. */
manta_status h5_chunking_read(const h5_file *f, const char *at, int version, h5_in in, const h5_space *space,
                              const h5_type *type, const h5_filters *filters,
                              h5_chunking *out) MANTA_MUST_USE;

/* ---- h5_tree.c ---- */

/* Called for every record, of `size` bytes at least as large as asked for. */
typedef manta_status (*h5_record_fn)(void *ctx, const uint8_t *record, size_t size);

/* Walks the B-tree of version 2 at `at`, whose records must be of type a or b. */
manta_status h5_tree_walk(const h5_file *f, uint64_t at, int a, int b, size_t smallest, h5_record_fn fn,
                          void *ctx, int *type) MANTA_MUST_USE;

/* ---- h5_heap.c ---- */

/* The name at `offset` of the local heap at `heap`. */
typedef struct h5_names_heap {
    const char *at;
    size_t n;
} h5_names_heap;
manta_status h5_names_heap_open(const h5_file *f, uint64_t at, h5_names_heap *out) MANTA_MUST_USE;
manta_status h5_names_heap_find(const h5_file *f, const h5_names_heap *h, uint64_t offset, const char **name,
                                size_t *n) MANTA_MUST_USE;

/* Texts of variable length. The collection used last is remembered. */
typedef struct h5_texts_heap {
    uint64_t at; /* H5_NOWHERE: none yet */
    VEC(h5_in) objects; /* by number; NULL bytes where there is none */
} h5_texts_heap;
manta_status h5_texts_heap_find(const h5_file *f, h5_texts_heap *h, uint64_t at, uint64_t number,
                                h5_in *out) MANTA_MUST_USE;

/* The fractal heap, of links and attributes that are many. */
typedef struct h5_heap {
    uint64_t at;
    size_t id_size, offset_size, length_size;
    uint64_t start, largest; /* sizes of direct blocks: the first, the last */
    uint64_t huge; /* B-tree of objects that lie outside */
    uint64_t root;
    int width, rows;
    bool sums; /* direct blocks have checksums */
} h5_heap;
manta_status h5_heap_open(const h5_file *f, uint64_t at, h5_heap *out) MANTA_MUST_USE;
manta_status h5_heap_find(const h5_file *f, const h5_heap *h, const uint8_t *id, size_t n,
                          h5_in *out) MANTA_MUST_USE;

#endif
