/* open.c - a dataset from its specification. */
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "format/array/files.h"
#include "format/array/npz.h"
#include "format/codec/shard.h"
#include "format/csv/csv.h"
#include "format/csv/csv_table.h"
#include "format/image/folder.h"
#include "format/builtin_datasets.h"
#include "format/joined.h"
#include "format/parquet/parquet.h"
#include "format/parquet/parquet_table.h"
#include "format/remote.h"
#include "format/spec.h"
#include "format/tfrecord/tfrecord.h"
#include "format/webdataset/webdataset.h"
#include "os/file.h"
#include <manta/data_file.h>

static manta_status open_builtin(const spec *s, const manta_open_options *o, manta_dataset **out)
{
    const builtin_dataset *set = builtin_find(s->a);
    char *x = NULL, *y = NULL;
    manta_status st;

    if ((st = builtin_locate(set, s->test ? 2 : 0, o->data_dir, &x))) goto out;
    if ((st = builtin_locate(set, s->test ? 3 : 1, o->data_dir, &y))) goto out;
    st = files_open(x, y, set->classes, o, out);
out:
    mem_free(x);
    mem_free(y);
    return st;
}

/* What is said of a table, by its specification and by the options. */
static manta_table_options table_options_of(const spec *s, const manta_open_options *o)
{
    manta_table_options how = s->how;

    how.x = s->x;
    how.y = s->y;
    how.keep_rows = how.without_y = o->inputs_only;
    if (o->allow_nan && !how.missing) how.missing = MANTA_TABLE_MISSING_NAN;
    return how;
}

/* By the mapping that is given, or one that is learnt from the table itself. Takes s. */
static manta_status open_table(table_source *s, const manta_table_options *how, const manta_open_options *o,
                               manta_dataset **out)
{
    manta_table *t = NULL;
    manta_table_options all = *how;
    manta_status st = MANTA_OK;

    if (!o->table) {
        st = table_learn(s, how, &t);
        all.without_y = false;
    }
    if (!st) st = table_dataset(o->table ? o->table : t, s, &all, out);
    table_source_release(s);
    if (!st && o->learnt) {
        *o->learnt = t;
        t = NULL;
    }
    manta_table_free(t);
    return st;
}

static manta_status open_csv(const spec *s, const manta_open_options *o, manta_dataset **out)
{
    manta_table_options how = table_options_of(s, o);
    table_source source;
    bool odd = true;

    if (s->plain && !o->table) TRY(csv_open_plain(s->a, s->y, o, &odd, out));
    if (!odd) return MANTA_OK;
    TRY(csv_table_open_path(s->a, &how, &source));
    return open_table(&source, &how, o, out);
}

/* As a table when a word of one is there, else, or when its columns are none of a table (lists, images),
 * as numbers. */
static manta_status open_parquet(const spec *s, const manta_open_options *o, manta_dataset **out)
{
    manta_table_options how = table_options_of(s, o);
    bool words = s->how.missing || s->how.categories || (s->x && strpbrk(s->x, "@\\")) ||
                 (s->y && strpbrk(s->y, "@\\"));
    table_source source;
    manta_error first;
    manta_status st;

    if (!o->table && !s->named_y && !words) return parquet_open(s->a, s->x, s->y, o, out);
    TRY(parquet_table_open_path(s->a, &source));
    st = open_table(&source, &how, o, out);
    if (st != MANTA_EUNSUPPORTED || o->table || words) return st;
    manta_error_get(&first);
    st = parquet_open(s->a, s->x, s->y, o, out);
    return st ? manta_error_raise(&first) : MANTA_OK;
}

static manta_status open_spec(const spec *s, const manta_open_options *o, manta_dataset **out)
{
    file_info info;

    switch (s->kind) {
    case SPEC_BUILTIN: return open_builtin(s, o, out);
    case SPEC_NPZ:
        return s->columns ? npz_open_columns(s->a, s->columns, o, out) : npz_open(s->a, s->x, s->y, o, out);
    case SPEC_CSV: return open_csv(s, o, out);
    case SPEC_PARQUET: return open_parquet(s, o, out);
    case SPEC_TAR: return webdataset_open(s->a, s->x, s->y, o, out);
    case SPEC_FILES: break;
    }
    TRY(file_stat(s->a, &info));
    if (info.is_folder && !s->b) return folder_open(s->a, o, out);
    return files_open(s->a, s->b, 0, o, out);
}

/* A source that is one thing, whatever files it lies in, is divided by sample. */
static manta_status divide_by_sample(const char *text, const manta_open_options *o, manta_dataset **d)
{
    if (o->shards > 1 && o->shard_policy == MANTA_SHARD_POLICY_FILE) {
        manta_dataset_unref(*d);
        *d = NULL;
        return manta_fail(
            MANTA_EINVAL,
            "dataset '%s' has no files to divide among %d workers; expected TFRecord or tar files, or "
            "dividing by sample (DATA)",
            text, o->shards);
    }
    *d = shard_samples(o, 1, *d);
    return MANTA_OK;
}

static manta_status open_text(const char *text, const manta_open_options *o, manta_dataset **out)
{
    file_info info;
    spec s = {0};
    bool tar;
    manta_status st;

    /* A folder may have any name, commas and colons and all. */
    if (text[0] && !builtin_find(text) && file_stat(text, &info) == MANTA_OK && info.is_folder) {
        TRY(folder_open(text, o, out));
        return divide_by_sample(text, o, out);
    }
    if (joined_is_spec(text)) {
        TRY(joined_open(text, o, out));
        return divide_by_sample(text, o, out);
    }
    if (tfrecord_is_spec(text)) return tfrecord_open_spec(text, o, out);
    TRY(spec_parse(text, &s));
    tar = s.kind == SPEC_TAR;
    st = open_spec(&s, o, out);
    spec_release(&s);
    return st || tar ? st : divide_by_sample(text, o, out);
}

manta_status manta_dataset_open(const char *text, const manta_open_options *options, manta_dataset **out)
{
    if (!text) return args_fail_null(__func__, "spec");
    REFUSE_NULL(out);

    static const manta_open_options none;
    const manta_open_options *o = options ? options : &none;
    manta_dataset *d = NULL;
    char *here = NULL;
    manta_status st;

    if (o->shards < 0 || o->shard < 0 || (o->shards && o->shard >= o->shards)) {
        return manta_fail(MANTA_EINVAL, "dataset '%s': there is no part %d of %d", text, o->shard, o->shards);
    }
    if (o->learnt) *o->learnt = NULL;
    TRY(remote_bring_all(text, &here));
    st = open_text(here ? here : text, o, &d);
    mem_free(here);
    if (!st) *out = d;
    return st;
}
