/* tfrecord.h - TFRecord files: numbered records out of one or many of them,
 * and writing them.
 *
 * Opening goes through the lengths alone, each checked by its sum and against
 * the file's size, and keeps where every record lies; so any record is reached
 * at once and a full shuffle needs no buffer. A plain file is then read record
 * by record (neighbours come in one call); a gzip or zlib file, which cannot be
 * entered in the middle, is unpacked into memory. */
#ifndef FORMAT_TFRECORD_TFRECORD_H
#define FORMAT_TFRECORD_TFRECORD_H

#include <manta/data_file.h>

#include "os/file.h"

typedef struct tfrecord tfrecord; /* shared by readers; immutable once open */
typedef struct tfrecord_reader tfrecord_reader; /* one per thread */

/* Opens the files in the order given. MANTA_ECORRUPT names file and offset. */
manta_status tfrecord_open(size_t n, char *const *paths, tfrecord **out);
/* Opens one file that lies in memory; data[0..size) is borrowed until tfrecord_free().
 * Sentences call the file `name`. */
manta_status tfrecord_of_bytes(const char *name, const uint8_t *data, size_t size, tfrecord **out);
void tfrecord_free(tfrecord *t); /* accepts NULL */
int64_t tfrecord_count(const tfrecord *t);

tfrecord_reader *tfrecord_reader_new(const tfrecord *t);
void tfrecord_reader_free(tfrecord_reader *r); /* accepts NULL */

/* Record i, checked against its sum; borrowed until the next call. */
manta_status tfrecord_read(tfrecord_reader *r, int64_t i, const uint8_t **data, size_t *n);
/* "shards/a.tfrecord: record 17 at offset 4711", for sentences about its insides;
 * i counts over all files, the text within its own. */
char *tfrecord_place(const tfrecord *t, int64_t i, char *text, size_t size);

/* ---- writing ---- */

typedef enum tfrecord_packing { TFRECORD_PLAIN = 0, TFRECORD_GZIP, TFRECORD_ZLIB } tfrecord_packing;
typedef struct tfrecord_writer tfrecord_writer;

/* The file appears under `path` with the commit, whole or not at all. */
manta_status tfrecord_writer_open(const char *path, tfrecord_packing p, tfrecord_writer **out);
manta_status tfrecord_writer_add(tfrecord_writer *w, const void *data, size_t n);
manta_status tfrecord_writer_commit(tfrecord_writer *w);
void tfrecord_writer_free(tfrecord_writer *w); /* accepts NULL */

/* ---- as a dataset ----
 *
 *     FILES[:COLUMN=FEATURE[@[DTYPE:]SHAPE],...]
 *
 * FILES: names separated by commas; in the last part of one * ? and [..] match
 * names, in their order. COLUMN=FEATURE says which features become which
 * columns; without any, all of the first record's do, under their own names in
 * the order of names. SHAPE, such as 28x28x1, is that of a sample; without it
 * a feature has as many values as in the first record, and one value makes a
 * scalar. A feature of bytes is an image when it is PNG or JPEG and DTYPE is
 * not given (size and channels as manta_open_options says, or as the first),
 * else elements of DTYPE, uint8 when it is not given. */

/* Whether a dataset specification is about TFRecord files, by their names. */
bool tfrecord_is_spec(const char *text);
manta_status tfrecord_open_spec(const char *text, const manta_open_options *o, manta_dataset **out);

#endif
