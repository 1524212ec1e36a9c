/* open.c - a dataset from its specification. */
#include "base/mem.h"
#include "format/csv.h"
#include "format/files.h"
#include "format/folder.h"
#include "format/named.h"
#include "format/npz.h"
#include "format/parquet.h"
#include "format/spec.h"
#include "format/tfrecord.h"
#include "format/webdataset.h"
#include "os/file.h"
#include <manta/data.h>

static manta_status open_named(const spec *s, const manta_open_options *o, manta_dataset **out)
{
    const named_set *set = named_find(s->a);
    char *x = NULL, *y = NULL;
    manta_status st;

    if ((st = named_locate(set, s->test ? 2 : 0, o->data_dir, &x))) goto out;
    if ((st = named_locate(set, s->test ? 3 : 1, o->data_dir, &y))) goto out;
    st = files_open(x, y, set->classes, o, out);
out:
    mem_free(x);
    mem_free(y);
    return st;
}

static manta_status open_spec(const spec *s, const manta_open_options *o, manta_dataset **out)
{
    file_info info;

    switch (s->kind) {
    case SPEC_NAMED: return open_named(s, o, out);
    case SPEC_NPZ: return npz_open(s->a, s->x, s->y, o, out);
    case SPEC_CSV: return csv_open(s->a, s->y, o, out);
    case SPEC_PARQUET: return parquet_open(s->a, s->x, s->y, o, out);
    case SPEC_TAR: return webdataset_open(s->a, s->x, s->y, o, out);
    case SPEC_FILES: break;
    }
    TRY(file_stat(s->a, &info));
    if (info.is_folder && !s->b) return folder_open(s->a, o, out);
    return files_open(s->a, s->b, 0, o, out);
}

manta_status manta_dataset_open(const char *text, const manta_open_options *options, manta_dataset **out)
{
    static const manta_open_options none;
    const manta_open_options *o = options ? options : &none;
    file_info info;
    spec s = {0};

    /* A folder may have any name, commas and colons and all. */
    if (text[0] && !named_find(text) && file_stat(text, &info) == MANTA_OK && info.is_folder) {
        return folder_open(text, o, out);
    }
    if (tfrecord_is_spec(text)) return tfrecord_open_spec(text, o, out);
    TRY(spec_parse(text, &s));
    manta_status st = open_spec(&s, o, out);
    spec_release(&s);
    return st;
}
