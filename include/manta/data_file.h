/* manta/data_file.h - datasets and arrays in files: opening, saving, describing, and
 * fetching them.
 *
 * Every reader treats its input as hostile: it fails with one sentence that names
 * the file and the place in it.
 *
 * Threads: a manta_arrays may be read by several. */
#ifndef MANTA_DATA_FILE_H
#define MANTA_DATA_FILE_H

#include <manta/data.h>
#include <manta/table.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- datasets by name ---------------------------------------------------- */

/* How a source is divided among workers that each read their own part. */
typedef enum manta_shard_policy {
    MANTA_SHARD_POLICY_AUTO, /* by file when there is at least one for each, else by sample; the log says which */
    MANTA_SHARD_POLICY_FILE, /* files i, i + n, ...: each is read by one worker alone */
    MANTA_SHARD_POLICY_DATA, /* samples i, i + n, ... of what the source makes */
    MANTA_SHARD_POLICY_OFF /* everybody reads everything */
} manta_shard_policy;

/* What files hold, see manta_dataset_open(). Zeroed memory is the default. */
typedef struct manta_open_options {
    bool raw; /* leave images as u8 instead of f32 in [0,1] */
    bool allow_nan; /* accept NaN in files of floating-point numbers */
    int image_height; /* image folder: every image is resized to this; 0: all must have */
    int image_width; /*   the size of the first */
    int image_channels; /* image folder: 1 or 3; 0: as the first image */
    int shards,
        shard; /* read part `shard` of so many; 0: all of it. manta_fit() divides every batch among its
                          workers by itself: this is for loops of a program's own */
    manta_shard_policy shard_policy;
    const char *data_dir; /* looked in before all others for named sets; NULL: $MANTA_DATA */
    const manta_table *table; /* tables: the mapping that makes numbers of them; NULL: it is learnt */
    manta_table **learnt; /* tables: gets the mapping that was learnt, owned; NULL when there was none to
                             learn: another source, a table of numbers alone, or `table` is set */
    bool inputs_only; /* tables: for a prediction. y is not read, and no row is left out */
} manta_open_options;

/* The dataset that `spec` names, with columns "x" and (where there are labels)
 * "y"; options may be NULL.
 *   mnist, fashion-mnist, mnist:test   u8 images as f32 in [0,1], labels i64
 *   x.npy,y.npy                        and x.npy alone
 *   f.npz:x,y                          members by name, the columns x and y
 *   f.npz:image=a,meta=b,y=c           members by name, as columns of any name
 *   image=a.npy,meta=f.csv:x=A+B,y=c.npy   several of these side by side, a column each (of a SPEC
 *                                      the column of that name, else its only one, else x)
 *   f.csv:y=COL                        the other columns as x, COL as y; f.csv:x=A+B,y=COL
 *                                      names them. Numbers, dates and categories, with
 *                                      missing=RULE and more: manta/table.h; .tsv likewise
 *   images-idx3,labels-idx1            IDX files, plain or gzip
 *   a folder                           one sub-folder per class of PNG or JPEG
 *   f.parquet:y=COL                    numbers as x, COL as y; f.parquet:x=A+B,y=COL
 *                                      names them: numbers, lists of one length, images
 *   shard-{000000..000003}.tar         WebDataset: images (or npy) as x, cls as y;
 *   shard-*.tar:npy,json.label         or what the members are called
 *   a.tfrecord:x=image,y=label         TFRecord files (plain, gzip, zlib) of Examples, by feature
 * Wherever a file is named, s3://BUCKET/KEY or https://HOST/PATH may stand: it is brought into the user's
 * cache folder, and brought again when the server has another.
 * Named sets are looked for in $MANTA_DATA, the user's cache folder and the
 * folder that came with Manta, in this order.
 * Large files may go on being decoded after this returns; what is wrong with
 * their insides is then reported by the first batch.
 * MANTA_ENOENT nothing there (the sentence says how to get it); MANTA_ECORRUPT
 * not what it claims to be, with file, offset and what was expected;
 * MANTA_EINVAL a spec that means nothing. */
MANTA_API manta_status manta_dataset_open(const char *spec, const manta_open_options *options,
                                          manta_dataset **out) MANTA_MUST_USE;

/* ---- arrays in files --------------------------------------------------- */

typedef struct manta_arrays manta_arrays; /* named arrays that own their memory; opaque */

/* Reads a .npy (one array, named "") or .npz file (plain or deflated members). */
MANTA_API manta_status manta_arrays_load(const char *path, manta_arrays **out) MANTA_MUST_USE;

/* The i-th array in file order, or NULL beyond the last; borrowed. */
MANTA_API const manta_column *manta_arrays_at(const manta_arrays *a, int i);
MANTA_API const manta_array *manta_arrays_find(const manta_arrays *a, const char *name);
MANTA_API void manta_arrays_free(manta_arrays *a); /* accepts NULL */

/* Writes .npy (n must be 1) or .npz, by the name's ending, so that the file
 * appears whole or not at all. Arrays may have any strides. */
MANTA_API manta_status manta_arrays_save(const char *path, int n, const manta_column *columns) MANTA_MUST_USE;

/* ---- what a file of samples holds ---------------------------------------- */

typedef struct manta_data_field {
    char *name; /* a column's; of a tar archive, what members' names end in */
    char *type; /* in the format's words: "INT64", "list of FLOAT", "text (BYTE_ARRAY)"; "" says nothing */
    int64_t samples; /* samples that have this field */
    int64_t bytes; /* bytes of the field in the file, over all samples */
} manta_data_field;

typedef struct manta_data_facts {
    const char *format; /* "parquet", "tar"; static */
    int64_t samples;
    int n;
    manta_data_field *fields; /* owned */
} manta_data_facts;

/* Describes a Parquet file or a tar archive in its own words, also where no
 * dataset can be made of it without saying which columns are x and y. *out: give
 * back with manta_data_facts_release(); untouched on failure. MANTA_EUNSUPPORTED
 * a file of another kind. */
MANTA_API manta_status manta_data_describe(const char *path, manta_data_facts *out) MANTA_MUST_USE;
MANTA_API void manta_data_facts_release(manta_data_facts *f); /* accepts zeroed memory */

/* ---- fetching ----------------------------------------------------------- */

/* Brings the named set, or the file at a URL (with its hexadecimal sha256, or
 * NULL to go unchecked), into the user's cache folder. A transfer that was cut
 * goes on where it stopped if there is a checksum; a file appears under its name only when it is whole
 * and its checksum right. `progress` may be NULL and may return false to stop
 * (MANTA_ECANCELLED). path, when not NULL, gets the folder or file.
 * MANTA_DATA_URL in the environment stands for where the named sets come from. */
typedef bool (*manta_progress_fn)(void *user, const char *file, int64_t done, int64_t total);
MANTA_API manta_status manta_data_fetch(const char *name_or_url, const char *sha256,
                                        manta_progress_fn progress, void *user, char *path,
                                        size_t path_size) MANTA_MUST_USE;

/* The name of the i-th set that has one; NULL past the last. */
MANTA_API const char *manta_data_name(int i);

/* The folder that holds all files of the named set, looked for where
 * manta_dataset_open() looks. MANTA_ENOENT when one is missing (the sentence
 * says how to get it), or when no set has that name. */
MANTA_API manta_status manta_data_path(const char *name, char *path, size_t path_size) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
