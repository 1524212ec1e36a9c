/* pt_model.c - a state as PyTorch's .pt: with a model beside it in PyTorch's
 * names and layout, without one as it is. */
#include "base/mem.h"
#include "format/model/model_file.h"
#include "format/torch/pt.h"
#include "format/torch/torch.h"
#include "tensor/copy.h"

static model_match probe_pt(const char *path, const uint8_t *head, size_t n)
{
    if (pt_is(head, n)) return MODEL_CONTENTS;
    return model_path_ends(path, ".pt") || model_path_ends(path, ".pth") ? MODEL_NAME : MODEL_NO;
}

static void release_file(void *ctx)
{
    pt_release(ctx);
    mem_free(ctx);
}

/* Row-major, as every array of a manta_saved. */
static manta_status add_plain(manta_saved *s, const char *name, const manta_array *a)
{
    manta_array made;

    if (manta_array_is_contiguous(a)) return saved_add(s, name, a);
    TRY(saved_new_array(s, name, a->dtype, a->ndim, a->shape, &made));
    return copy_strided(NULL, &made, a, false);
}

static manta_status read_pt(const char *path, const manta_read_options *o, manta_saved *s)
{
    pt_file *f = mem_new(sizeof *f);
    manta_column *columns;
    manta_status st;
    int n;

    if ((st = pt_read(path, f))) {
        mem_free(f);
        return st;
    }
    saved_own(s, release_file, f);
    for (size_t i = 0; i < f->notes.n; i++) saved_note(s, f->notes.at[i].name, f->notes.at[i].text);
    if (o->model_only) return MANTA_OK;
    n = (int)f->tensors.n;
    columns = mem_new((size_t)(n + 1) * sizeof *columns);
    for (int i = 0; i < n && !st; i++) {
        columns[i].name = f->tensors.at[i].name;
        st = pt_array(f, i, &columns[i].array);
    }
    if (!st && o->like && torch_is_state(o->like, n, columns)) {
        st = torch_import(path, o->like, n, columns, s);
    } else {
        for (int i = 0; i < n && !st; i++) st = add_plain(s, columns[i].name, &columns[i].array);
        if (!st && o->like) st = saved_check(s, path, o->like);
    }
    mem_free(columns);
    return st;
}

static manta_status write_pt(const char *path, const manta_contents *c)
{
    torch_state t = {0};
    manta_status st;

    if (!c->model) return pt_write(path, c->n_arrays, c->arrays);
    TRY(torch_export(path, c->model, c->n_arrays, c->arrays, &t));
    st = pt_write(path, t.n, t.columns);
    torch_state_release(&t);
    return st;
}

const model_format model_pt = {.name = "pt",
                               .about = "a state dict of PyTorch",
                               .ending = ".pt",
                               .also = ".pth",
                               .probe = probe_pt,
                               .read = read_pt,
                               .write = write_pt};
