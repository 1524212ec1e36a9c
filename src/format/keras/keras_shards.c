/* keras_shards.c - .weights.json: weights that Keras split over several files.
 *
 *   x.weights.json     {"metadata": {"total_size": N},
 *                       "weight_map": {"/layers/dense/vars": "x_00000.weights.h5", ...}}
 *   x_00000.weights.h5, x_00001.weights.h5, ... beside it
 *
 * A group may be split too; its entry is then a list of files. Together the
 * files hold what one .weights.h5 would, so they are read as one. */
#include <string.h>

#include "base/mem.h"
#include "format/keras/keras_json.h"
#include "format/keras/keras_state.h"
#include "format/model/model_file.h"
#include "os/file.h"

enum { MAX_SHARDS = 4096 };

typedef struct shards {
    const char *path; /* of the .json */
    MAP(bool) seen;
    h5_file *first; /* with the others joined to it */
    manta_saved *s;
} shards;

/* Adds the file called `name`, beside the .json, unless it is there already. */
static manta_status add_shard(shards *x, const char *name)
{
    const char *slash = strrchr(x->path, '/');
    char *path;
    h5_file *f = NULL;
    void *data = NULL;
    size_t size = 0;
    manta_status st;

    if (map_find(&x->seen, name)) return MANTA_OK;
    if (!*name || strchr(name, '/') || !strcmp(name, "..") || !strcmp(name, ".")) {
        return manta_fail(MANTA_ECORRUPT, "%s: weight_map: '%s' is no name of a file beside it", x->path,
                          name);
    }
    if (x->seen.n >= MAX_SHARDS) {
        return manta_fail(MANTA_ECORRUPT, "%s: weight_map: more than %d files", x->path, MAX_SHARDS);
    }
    *map_put(&x->seen, name) = true;
    path = mem_printf("%.*s%s", slash ? (int)(slash + 1 - x->path) : 0, x->path, name);
    st = file_read(path, SIZE_MAX / 2, &data, &size);
    saved_keep(x->s, data);
    if (!st) st = h5_open(path, data, size, &f);
    if (!st && x->first) {
        h5_join(x->first, f);
    } else if (!st) {
        x->first = f;
    }
    mem_free(path);
    return st;
}

/* The files of one group: a name, or a list of them. */
static manta_status add_entry(shards *x, const char *group, const json_t *files)
{
    if (json_is_string(files)) return add_shard(x, json_string_value(files));
    if (!json_is_array(files)) {
        return manta_fail(MANTA_ECORRUPT, "%s: weight_map: '%s' is neither a name nor a list of them",
                          x->path, group);
    }
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *name = json_string_value(json_array_get(files, i));
        if (!name)
            return manta_fail(MANTA_ECORRUPT, "%s: weight_map: '%s' lists what is no name", x->path, group);
        TRY(add_shard(x, name));
    }
    return MANTA_OK;
}

static manta_status open_shards(shards *x, json_t *index)
{
    json_t *map = json_object_get(index, "weight_map"), *files;
    const char *group;

    if (!json_is_object(map) || json_object_size(map) == 0) {
        return manta_fail(MANTA_ECORRUPT, "%s: it has no weight_map that names the files with the weights",
                          x->path);
    }
    json_object_foreach(map, group, files)
    {
        TRY(add_entry(x, group, files));
    }
    return x->first ? MANTA_OK : manta_fail(MANTA_ECORRUPT, "%s: weight_map names no file", x->path);
}

static manta_status shards_read(const char *path, const manta_read_options *o, manta_saved *s)
{
    shards x = {.path = path, .s = s};
    json_t *index = NULL;
    void *text = NULL;
    size_t size = 0;
    manta_status st;

    TRY(file_read(path, KERAS_JSON_MAX, &text, &size));
    st = keras_json_parse(path, text, size, &index);
    if (!st) st = open_shards(&x, index);
    if (!st) st = keras_weights_read(path, x.first, o, s);
    h5_close(x.first);
    map_release(&x.seen);
    json_decref(index);
    mem_try_free(text);
    return st;
}

static model_match shards_probe(const char *path, const uint8_t *head, size_t n)
{
    if (!model_path_ends(path, ".weights.json")) return MODEL_NO;
    return memmem(head, n, "\"weight_map\"", 12) ? MODEL_CONTENTS : MODEL_NAME;
}

const model_format model_weights_shards = {.name = "weights.json",
                                           .about = "the weights of a Keras model, in several files",
                                           .ending = ".weights.json",
                                           .probe = shards_probe,
                                           .read = shards_read};
