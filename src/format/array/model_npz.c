/* model_npz.c - a state as NumPy's .npz, under the names it has everywhere. */
#include <manta/data_file.h>

#include "format/model/model_file.h"

static model_match probe_npz(const char *path, const uint8_t *head, size_t n)
{
    if (model_head_is_zip(head, n, ".npy")) return MODEL_CONTENTS;
    return model_path_ends(path, ".npz") ? MODEL_NAME : MODEL_NO;
}

static void free_arrays(void *ctx)
{
    manta_arrays_free(ctx);
}

static manta_status read_npz(const char *path, const manta_read_options *o, manta_saved *s)
{
    manta_arrays *file = NULL;

    if (o->model_only) return MANTA_OK;
    TRY(manta_arrays_load(path, &file));
    saved_own(s, free_arrays, file);
    for (int i = 0; manta_arrays_at(file, i); i++) {
        const manta_column *c = manta_arrays_at(file, i);
        TRY(saved_add(s, c->name, &c->array));
    }
    return o->like ? saved_check(s, path, o->like) : MANTA_OK;
}

static manta_status write_npz(const char *path, const manta_contents *c)
{
    return manta_arrays_save(path, c->n_arrays, c->arrays);
}

const model_format model_npz = {.name = "npz",
                                .about = "a NumPy archive of arrays",
                                .ending = ".npz",
                                .probe = probe_npz,
                                .read = read_npz,
                                .write = write_npz};
