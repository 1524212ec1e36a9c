/* example.h - TensorFlow's Example: named lists of bytes, floats or integers,
 * the usual contents of a TFRecord. Pure; nothing is copied or allocated.
 *
 *   Example  1: Features  1: map entry { 1: name  2: Feature }
 *   Feature  1: BytesList | 2: FloatList | 3: Int64List,  each  1: repeated value
 *
 * Numbers may be packed into one field (as every writer does today) or stand
 * in one each. */
#ifndef FORMAT_TFRECORD_EXAMPLE_H
#define FORMAT_TFRECORD_EXAMPLE_H

#include "format/codec/proto.h"

typedef enum example_kind {
    EXAMPLE_NOTHING = 0, /* a feature without a list, which TensorFlow treats as absent */
    EXAMPLE_BYTES,
    EXAMPLE_FLOATS,
    EXAMPLE_INTS
} example_kind;

typedef struct example_feature {
    const char *name; /* not terminated */
    size_t name_n;
    example_kind kind;
    proto_reader list; /* the values */
} example_feature;

/* Going through the features of an Example. */
typedef struct example_reader {
    proto_reader outer, features;
} example_reader;

static inline example_reader example_read(const void *data, size_t n)
{
    return (example_reader){.outer = proto_read(data, n)};
}

/* The next feature. A name may come twice; the last one counts. */
proto_step example_next(example_reader *r, example_feature *f);

/* How many values a feature has; -1 when its bytes are damaged. */
int64_t example_count(const example_feature *f);

/* Writes the values, at most `most`, and gives the number there are; -1 when
 * the bytes are damaged or of another kind. */
int64_t example_floats(const example_feature *f, int64_t most, float *out);
int64_t example_ints(const example_feature *f, int64_t most, int64_t *out);
/* The first byte string, in place; the number there are. */
int64_t example_bytes(const example_feature *f, const uint8_t **at, size_t *n);

/* ---- writing ---- */

typedef struct example_writer {
    buf *b;
    size_t mark;
} example_writer;

/* Adds an Example to b: begin, features, end. */
example_writer example_begin(buf *b);
void example_end(example_writer *w);
void example_add_floats(example_writer *w, const char *name, int64_t n, const float *v);
void example_add_ints(example_writer *w, const char *name, int64_t n, const int64_t *v);
void example_add_bytes(example_writer *w, const char *name, const void *data, size_t n);

#endif
