/* arrays.c - named arrays to and from .npy and .npz files. */
#include <libdeflate.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "format/array/npy.h"
#include "format/array/npz.h"
#include "format/codec/elements.h"
#include "os/file.h"

struct manta_arrays {
    int n;
    manta_column *columns; /* names owned */
    blob *blobs;
};

void manta_arrays_free(manta_arrays *a)
{
    if (!a) return;
    for (int i = 0; i < a->n; i++) {
        mem_free((char *)(uintptr_t)a->columns[i].name);
        blob_release(&a->blobs[i]);
    }
    mem_free(a->columns);
    mem_free(a->blobs);
    mem_free(a);
}

const manta_column *manta_arrays_at(const manta_arrays *a, int i)
{
    REFUSE_NULL_OR(a, NULL);
    return i >= 0 && i < a->n ? &a->columns[i] : NULL;
}

const manta_array *manta_arrays_find(const manta_arrays *a, const char *name)
{
    REFUSE_NULL_OR(a, NULL);
    REFUSE_NULL_OR(name, NULL);

    for (int i = 0; i < a->n; i++) {
        if (strcmp(a->columns[i].name, name) == 0) return &a->columns[i].array;
    }
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------- */

static void make_room(manta_arrays *a, int n)
{
    a->columns = mem_new((size_t)(n ? n : 1) * sizeof *a->columns);
    a->blobs = mem_new((size_t)(n ? n : 1) * sizeof *a->blobs);
}

/* Takes the name. */
static void add_array(manta_arrays *a, char *name, const blob *b)
{
    a->blobs[a->n] = *b;
    a->columns[a->n++] = (manta_column){name, b->array};
}

static manta_status load_npz(const input *in, manta_arrays *a)
{
    zip z = {0};
    manta_status st = zip_parse(in->path, in->data, in->size, &z);

    if (st) return st;
    make_room(a, z.n);
    for (int i = 0; i < z.n && !st; i++) {
        const char *name = z.entries[i].name;
        size_t n = strlen(name);
        blob b = {0};
        if (n < 4 || strcmp(name + n - 4, ".npy") != 0) {
            st = manta_fail(MANTA_ECORRUPT, "%s: the member '%s' is no .npy array", in->path, name);
        } else if (!(st = npz_member(&z, name, true, &b))) {
            add_array(a, mem_strndup(name, n - 4), &b);
        }
    }
    zip_release(&z);
    return st;
}

static manta_status load_npy(const input *in, manta_arrays *a)
{
    blob b = {0};

    TRY(npy_parse(in->path, in->data, in->size, true, &b));
    make_room(a, 1);
    add_array(a, mem_strdup(""), &b);
    return MANTA_OK;
}

manta_status manta_arrays_load(const char *path, manta_arrays **out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    input in = {0};

    TRY(input_read(path, &in));
    manta_arrays *a = mem_new(sizeof *a);
    manta_status st = npy_is(in.data, in.size) ? load_npy(&in, a) : load_npz(&in, a);
    input_release(&in);
    if (st) {
        manta_arrays_free(a);
        return st;
    }
    *out = a;
    return MANTA_OK;
}

/* ---- writing ----------------------------------------------------------------------- */

static manta_status save_member(zip_writer *z, const manta_column *c)
{
    buf head = {0};
    uint32_t crc;
    char *name = NULL;
    manta_status st;

    if ((st = npy_header(&c->array, &head))) goto out;
    crc = libdeflate_crc32(0, head.at, head.n);
    if ((st = elements_each(&c->array, zip_to_sum, &crc))) goto out;
    name = mem_printf("%s.npy", c->name ? c->name : "");
    if ((st = zip_begin(z, name, head.n + manta_array_bytes(&c->array), crc))) goto out;
    if ((st = zip_write(z, head.at, head.n))) goto out;
    st = elements_each(&c->array, zip_to_member, z);
out:
    mem_free(name);
    buf_release(&head);
    return st;
}

static manta_status save_npz(file_writer *w, int n, const manta_column *columns)
{
    zip_writer z = {.w = w};
    manta_status st = MANTA_OK;

    for (int i = 0; i < n && !st; i++) st = save_member(&z, &columns[i]);
    if (!st) st = zip_end(&z);
    zip_writer_release(&z);
    return st;
}

static manta_status save_npy(file_writer *w, const manta_column *c)
{
    buf head = {0};
    manta_status st = npy_header(&c->array, &head);

    if (!st) st = file_writer_write(w, head.at, head.n);
    if (!st) st = elements_to_file(&c->array, w);
    buf_release(&head);
    return st;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), k = strlen(ending);

    return n > k && strcmp(path + n - k, ending) == 0;
}

static manta_status check_names(const char *path, int n, const manta_column *columns)
{
    for (int i = 0; i < n; i++) {
        const char *name = columns[i].name;
        if (!name || !name[0]) return manta_fail(MANTA_EINVAL, "%s: array %d has no name", path, i);
        for (int k = 0; k < i; k++) {
            if (strcmp(columns[k].name, name) == 0) {
                return manta_fail(MANTA_EINVAL, "%s: two arrays are called '%s'", path, name);
            }
        }
    }
    return MANTA_OK;
}

manta_status manta_arrays_save(const char *path, int n, const manta_column *columns)
{
    REFUSE_NULL(path);
    REFUSE_ARRAY(n, columns);

    bool npz = ends_in(path, ".npz");
    file_writer *w = NULL;
    manta_status st;

    if (!npz && !ends_in(path, ".npy"))
        return manta_fail(MANTA_EINVAL, "%s: expected a name that ends in .npy or .npz", path);
    if (!npz && n != 1) return manta_fail(MANTA_EINVAL, "%s: a .npy file holds 1 array, %d given", path, n);
    if (npz) TRY(check_names(path, n, columns));
    if ((st = file_writer_open(path, &w))) goto out;
    if ((st = npz ? save_npz(w, n, columns) : save_npy(w, columns))) goto out;
    st = file_writer_commit(w);
out:
    file_writer_free(w);
    return st;
}
