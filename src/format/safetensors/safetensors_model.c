/* safetensors_model.c - a state as a safetensors file, under the names it has
 * everywhere; notes are its metadata. */
#include "base/mem.h"
#include "format/model/model_file.h"
#include "format/safetensors/safetensors.h"
#include "format/torch/torch.h"

static model_match probe_safetensors(const char *path, const uint8_t *head, size_t n)
{
    if (safetensors_is(head, n)) return MODEL_CONTENTS;
    return model_path_ends(path, ".safetensors") ? MODEL_NAME : MODEL_NO;
}

static void release_file(void *ctx)
{
    safetensors_release(ctx);
    mem_free(ctx);
}

/* Gives s what f has, and f itself. */
static manta_status fill_saved(const char *path, safetensors *f, const manta_read_options *o, manta_saved *s)
{
    manta_column *columns;
    manta_status st = MANTA_OK;

    saved_own(s, release_file, f);
    for (int i = 0; i < f->n_metadata; i++) saved_note(s, f->metadata[i].key, f->metadata[i].value);
    if (o->model_only) return MANTA_OK;
    columns = mem_new((size_t)(f->n + 1) * sizeof *columns);
    for (int i = 0; i < f->n && !st; i++) {
        columns[i].name = f->tensors[i].name;
        st = safetensors_array(f, i, &columns[i].array);
    }
    if (!st && o->like && torch_is_state(o->like, f->n, columns)) {
        st = torch_import(path, o->like, f->n, columns, s);
    } else {
        for (int i = 0; i < f->n && !st; i++) st = saved_add(s, columns[i].name, &columns[i].array);
        if (!st && o->like) st = saved_check(s, path, o->like);
    }
    mem_free(columns);
    return st;
}

static manta_status read_safetensors(const char *path, const manta_read_options *o, manta_saved *s)
{
    safetensors *f = mem_new(sizeof *f);
    manta_status st = safetensors_read(path, f);

    if (!st) return fill_saved(path, f, o, s);
    mem_free(f);
    return st;
}

manta_status safetensors_saved(const char *path, uint8_t *data, size_t size, manta_saved **out)
{
    static const manta_read_options none;
    safetensors *f = mem_new(sizeof *f);
    manta_saved *s;
    manta_status st = safetensors_parse(path, data, size, f);

    if (st) {
        mem_free(f);
        mem_try_free(data);
        return st;
    }
    f->borrowed = false;
    s = saved_make(&model_safetensors);
    if ((st = fill_saved(path, f, &none, s))) {
        manta_saved_free(s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}

static manta_status write_safetensors(const char *path, const manta_contents *c)
{
    safetensors_pair *pairs = mem_new((size_t)(c->n_notes + 1) * sizeof *pairs);
    manta_status st;

    for (int i = 0; i < c->n_notes; i++) {
        pairs[i] = (safetensors_pair){c->notes[i].name, c->notes[i].text};
    }
    st = safetensors_write(path, c->n_arrays, c->arrays, c->n_notes, pairs);
    mem_free(pairs);
    return st;
}

const model_format model_safetensors = {.name = "safetensors",
                                        .about = "a safetensors file of arrays",
                                        .ending = ".safetensors",
                                        .probe = probe_safetensors,
                                        .read = read_safetensors,
                                        .write = write_safetensors};
