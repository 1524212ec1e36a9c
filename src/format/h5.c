/* h5.c - HDF5 files in memory, read through libhdf5.
 *
 * The file image is lent to HDF5's core driver (the callbacks below keep it
 * from making copies), and a dataset whose bytes lie in one piece is not read
 * at all: its elements are a view of the image.
 *
 * Paths are walked link by link, so that a soft or external link is seen before
 * it is followed. libhdf5's own messages are silenced while the lock is held;
 * the innermost of them ends up in our sentence. */
#include "format/h5.h"

#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/gzip.h"
#include "format/input.h"

enum {
    MAX_DEPTH = 64, /* components of a path */
    MAX_NAMES = 1 << 20, /* in one group or list */
};

struct h5_file {
    char *path;
    const uint8_t *data;
    size_t size;
    hid_t id;
};

/* ---- the lock, and libhdf5's messages ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static H5E_auto2_t printer; /* guarded by lock */
static void *printer_data;

void h5_enter(void)
{
    pthread_mutex_lock(&lock);
    H5Eget_auto2(H5E_DEFAULT, &printer, &printer_data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void h5_leave(void)
{
    H5Eset_auto2(H5E_DEFAULT, printer, printer_data);
    pthread_mutex_unlock(&lock);
}

static herr_t innermost(unsigned n, const H5E_error2_t *e, void *ctx)
{
    if (n == 0 && e->desc) snprintf(ctx, 96, "%s", e->desc);
    return 0;
}

/* The sentence for what libhdf5 could not do. */
static manta_status h5_fail(const h5_file *f, const char *at, const char *doing)
{
    char why[96] = "";

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, why);
    return manta_fail(MANTA_ECORRUPT, "%s: /%s: %s%s%s%s", f->path, at, doing, why[0] ? " (HDF5: " : "", why,
                      why[0] ? ")" : "");
}

/* ---- the image ---- */

static void *image_malloc(size_t size, H5FD_file_image_op_t op, void *ctx)
{
    h5_file *f = ctx;

    (void)op;
    return size == f->size ? (void *)(uintptr_t)f->data : NULL;
}

static void *image_memcpy(void *to, const void *from, size_t size, H5FD_file_image_op_t op, void *ctx)
{
    (void)op;
    (void)ctx;
    (void)size;
    return to == from ? to : NULL; /* the one image there is */
}

static void *image_realloc(void *p, size_t size, H5FD_file_image_op_t op, void *ctx)
{
    (void)p;
    (void)size;
    (void)op;
    (void)ctx;
    return NULL; /* the file is only read */
}

static herr_t image_free(void *p, H5FD_file_image_op_t op, void *ctx)
{
    (void)p;
    (void)op;
    (void)ctx;
    return 0;
}

static void *image_ctx_copy(void *ctx)
{
    return ctx;
}

static herr_t image_ctx_free(void *ctx)
{
    (void)ctx;
    return 0;
}

static manta_status open_image(h5_file *f)
{
    static atomic_uint counter; /* libhdf5 takes two files of one name for the same */
    H5FD_file_image_callbacks_t callbacks = {
        image_malloc, image_memcpy, image_realloc, image_free, image_ctx_copy, image_ctx_free, f};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    manta_status st = MANTA_OK;
    char name[48];

    snprintf(name, sizeof name, "manta-image-%u", atomic_fetch_add(&counter, 1));
    if (access < 0 || H5Pset_fapl_core(access, 1 << 16, 0) < 0 ||
        H5Pset_file_image_callbacks(access, &callbacks) < 0 ||
        H5Pset_file_image(access, (void *)(uintptr_t)f->data, f->size) < 0 ||
        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
        (f->id = H5Fopen(name, H5F_ACC_RDONLY, access)) < 0) {
        st = h5_fail(f, "", "not an HDF5 file that can be opened");
    }
    if (access >= 0) H5Pclose(access);
    return st;
}

bool h5_is(const uint8_t *data, size_t size)
{
    return size >= 8 && memcmp(data, "\211HDF\r\n\032\n", 8) == 0;
}

manta_status h5_open(const char *path, const uint8_t *data, size_t size, h5_file **out)
{
    h5_file *f;
    manta_status st;

    if (!h5_is(data, size)) {
        return manta_fail(MANTA_ECORRUPT, "%s: not an HDF5 file: its signature is missing at offset 0", path);
    }
    f = mem_new(sizeof *f);
    *f = (h5_file){.path = mem_strdup(path), .data = data, .size = size, .id = -1};
    h5_enter();
    st = open_image(f);
    h5_leave();
    if (st) {
        h5_close(f);
        return st;
    }
    *out = f;
    return MANTA_OK;
}

void h5_close(h5_file *f)
{
    if (!f) return;
    h5_enter();
    if (f->id >= 0) H5Fclose(f->id);
    h5_leave();
    mem_free(f->path);
    mem_free(f);
}

/* ---- finding ---- */

/* Opens the object at `at` by its hard links; *out is -1 when there is none. */
static manta_status open_object(const h5_file *f, const char *at, hid_t *out)
{
    hid_t here = H5Oopen(f->id, "/", H5P_DEFAULT), next;
    const char *p = at;

    *out = -1;
    if (here < 0) return h5_fail(f, at, "the root cannot be opened");
    for (int depth = 0; *p; depth++) {
        size_t n = strcspn(p, "/");
        char *name = mem_strndup(p, n);
        H5L_info_t info;
        H5I_type_t type = H5Iget_type(here);
        manta_status st = MANTA_OK;
        htri_t there =
            type == H5I_GROUP && n > 0 && depth < MAX_DEPTH ? H5Lexists(here, name, H5P_DEFAULT) : 0;

        next = -1;
        if (there < 0 || (there > 0 && H5Lget_info(here, name, &info, H5P_DEFAULT) < 0)) {
            st = h5_fail(f, at, "its link cannot be read");
        } else if (there > 0 && info.type != H5L_TYPE_HARD) {
            st = manta_fail(MANTA_EUNSUPPORTED,
                            "%s: /%s: '%s' is a soft or external link; only what lies in "
                            "the file itself is read",
                            f->path, at, name);
        } else if (there > 0 && (next = H5Oopen(here, name, H5P_DEFAULT)) < 0) {
            st = h5_fail(f, at, "it cannot be opened");
        }
        mem_free(name);
        H5Oclose(here);
        if (st || next < 0) return st;
        here = next;
        p += n;
        if (*p == '/') p++;
    }
    *out = here;
    return MANTA_OK;
}

manta_status h5_find(h5_file *f, const char *at, h5_kind *out)
{
    hid_t id;
    manta_status st;

    h5_enter();
    *out = H5_NOTHING;
    st = open_object(f, at, &id);
    if (!st && id >= 0) {
        H5I_type_t type = H5Iget_type(id);
        *out = type == H5I_GROUP ? H5_GROUP : type == H5I_DATASET ? H5_DATASET : H5_NOTHING;
        H5Oclose(id);
    }
    h5_leave();
    return st;
}

void h5_names_release(h5_names *names)
{
    for (size_t i = 0; i < names->n; i++) mem_free(names->at[i]);
    vec_release(names);
}

static herr_t add_name(hid_t group, const char *name, const H5L_info_t *info, void *ctx)
{
    h5_names *out = ctx;

    (void)group;
    (void)info;
    if (out->n >= MAX_NAMES) return -1;
    vec_push(out, mem_strdup(name));
    return 0;
}

static int by_bytes(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

manta_status h5_list(h5_file *f, const char *at, h5_names *out)
{
    hid_t id;
    manta_status st;

    h5_enter();
    if ((st = open_object(f, at, &id))) goto out;
    if (id < 0 || H5Iget_type(id) != H5I_GROUP) {
        st = manta_fail(MANTA_ENOENT, "%s: there is no group /%s", f->path, at);
    } else if (H5Literate(id, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, add_name, out) < 0) {
        st = h5_fail(f, at, "the group cannot be listed");
    }
    if (id >= 0) H5Oclose(id);
    if (st) {
        h5_names_release(out);
    } else if (out->n) {
        qsort(out->at, out->n, sizeof *out->at, by_bytes);
    }
out:
    h5_leave();
    return st;
}

/* ---- datasets ---- */

/* A dataset's description, checked. */
typedef struct h5_dataset {
    hid_t id, type, space, plist;
    H5D_layout_t layout;
    int ndim;
    int64_t shape[MANTA_MAX_DIMS];
    manta_dtype dtype;
    hid_t memory; /* the type to read as; closed by h5_dataset_release() */
    size_t bytes; /* in memory */
    bool as_stored; /* elements lie in the file as we want them */
} h5_dataset;

static void dataset_release(h5_dataset *d)
{
    if (d->memory >= 0) H5Tclose(d->memory);
    if (d->plist >= 0) H5Pclose(d->plist);
    if (d->space >= 0) H5Sclose(d->space);
    if (d->type >= 0) H5Tclose(d->type);
    if (d->id >= 0) H5Oclose(d->id);
}

static manta_status dataset_shape(const h5_file *f, const char *at, h5_dataset *d)
{
    hsize_t dims[H5S_MAX_RANK];
    H5S_class_t kind;

    if ((d->space = H5Dget_space(d->id)) < 0) return h5_fail(f, at, "its shape cannot be read");
    kind = H5Sget_simple_extent_type(d->space);
    if (kind != H5S_SCALAR && kind != H5S_SIMPLE) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: /%s: a dataset without elements", f->path, at);
    }
    d->ndim = H5Sget_simple_extent_ndims(d->space);
    if (d->ndim < 0 || d->ndim > H5S_MAX_RANK) return h5_fail(f, at, "its shape cannot be read");
    if (d->ndim > MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: /%s: %d dimensions, expected at most %d", f->path, at,
                          d->ndim, MANTA_MAX_DIMS);
    }
    if (d->ndim && H5Sget_simple_extent_dims(d->space, dims, NULL) < 0) {
        return h5_fail(f, at, "its shape cannot be read");
    }
    for (int i = 0; i < d->ndim; i++) {
        if (dims[i] > INT64_MAX) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: dimension %d cannot be that large", f->path, at, i);
        }
        d->shape[i] = (int64_t)dims[i];
    }
    return MANTA_OK;
}

/* Whether the dataset says of itself that it is bfloat16, for which HDF5 has no type. */
static bool says_bfloat16(const h5_dataset *d)
{
    char text[16] = "";
    bool is = false;
    hid_t a = H5Aexists(d->id, "dtype") > 0 ? H5Aopen(d->id, "dtype", H5P_DEFAULT) : -1;
    hid_t type = a >= 0 ? H5Aget_type(a) : -1;

    if (type >= 0 && H5Tget_class(type) == H5T_STRING) {
        if (H5Tis_variable_str(type) > 0) {
            char *s = NULL;
            hid_t space = H5Aget_space(a);
            if (space >= 0 && H5Sget_simple_extent_npoints(space) == 1 && H5Aread(a, type, &s) >= 0 && s) {
                is = !strcmp(s, "bfloat16");
            }
            if (s) H5free_memory(s);
            if (space >= 0) H5Sclose(space);
        } else if (H5Tget_size(type) < sizeof text && H5Aread(a, type, text) >= 0) {
            is = !strcmp(text, "bfloat16");
        }
    }
    if (type >= 0) H5Tclose(type);
    if (a >= 0) H5Aclose(a);
    return is;
}

/* float16: half a float32's size, laid out as IEEE 754 says. */
static bool is_half(hid_t type)
{
    size_t sign, exponent_at, exponent_n, mantissa_at, mantissa_n;

    return H5Tget_size(type) == 2 &&
           H5Tget_fields(type, &sign, &exponent_at, &exponent_n, &mantissa_at, &mantissa_n) >= 0 &&
           sign == 15 && exponent_n == 5 && mantissa_n == 10 && H5Tget_ebias(type) == 15;
}

/* Chooses what the elements become. */
static manta_status dataset_type(const h5_file *f, const char *at, h5_dataset *d)
{
    H5T_class_t class;
    size_t size;

    if ((d->type = H5Dget_type(d->id)) < 0) return h5_fail(f, at, "its type cannot be read");
    class = H5Tget_class(d->type);
    size = H5Tget_size(d->type);
    if (class == H5T_FLOAT && is_half(d->type)) {
        d->dtype = MANTA_DTYPE_F16;
        d->memory = H5Tcopy(d->type);
        if (d->memory >= 0) H5Tset_order(d->memory, H5T_ORDER_LE);
    } else if (class == H5T_FLOAT && size <= 8) {
        d->dtype = size == 8 ? MANTA_DTYPE_F64 : MANTA_DTYPE_F32;
        d->memory = H5Tcopy(size == 8 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE);
    } else if (class == H5T_INTEGER && size <= 8) {
        bool is_signed = H5Tget_sign(d->type) == H5T_SGN_2;
        d->dtype = size == 1 && !is_signed  ? MANTA_DTYPE_U8
                   : size == 4 && is_signed ? MANTA_DTYPE_I32
                                            : MANTA_DTYPE_I64;
        d->memory = H5Tcopy(d->dtype == MANTA_DTYPE_U8    ? H5T_STD_U8LE
                            : d->dtype == MANTA_DTYPE_I32 ? H5T_STD_I32LE
                                                          : H5T_STD_I64LE);
    } else if (class == H5T_OPAQUE && size == 2 && says_bfloat16(d)) {
        d->dtype = MANTA_DTYPE_BF16;
        d->memory = H5Tcopy(d->type);
    } else {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: /%s: elements of a type that Manta has not", f->path, at);
    }
    if (d->memory < 0) return h5_fail(f, at, "its type cannot be read");
    d->as_stored = H5Tequal(d->type, d->memory) > 0;
    return MANTA_OK;
}

/* Filters that unpack what lies in the file, and can only grow it by so much. */
static manta_status check_filters(const h5_file *f, const char *at, const h5_dataset *d, hsize_t stored)
{
    hsize_t chunk[H5S_MAX_RANK], largest = stored * GZIP_MAX_RATIO + (1 << 20), bytes = H5Tget_size(d->type);
    int n = H5Pget_nfilters(d->plist), rank = H5Pget_chunk(d->plist, H5S_MAX_RANK, chunk);

    if (n < 0 || rank < 0) return h5_fail(f, at, "its chunks cannot be read");
    for (int i = 0; i < n; i++) {
        unsigned flags, config;
        size_t values = 0;
        H5Z_filter_t id = H5Pget_filter2(d->plist, (unsigned)i, &flags, &values, NULL, 0, NULL, &config);
        if (id != H5Z_FILTER_DEFLATE && id != H5Z_FILTER_SHUFFLE && id != H5Z_FILTER_FLETCHER32) {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "%s: /%s: packed by filter %d, expected deflate, shuffle or "
                              "fletcher32",
                              f->path, at, (int)id);
        }
    }
    for (int i = 0; i < rank; i++) {
        if (chunk[i] == 0 || bytes > largest / chunk[i]) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: chunks larger than its %llu stored bytes can fill",
                              f->path, at, (unsigned long long)stored);
        }
        bytes *= chunk[i];
    }
    return MANTA_OK;
}

/* That the file has the bytes which the shape promises. */
static manta_status dataset_storage(const h5_file *f, const char *at, h5_dataset *d)
{
    size_t in_file;
    hsize_t stored;

    if ((d->plist = H5Dget_create_plist(d->id)) < 0) return h5_fail(f, at, "its layout cannot be read");
    d->layout = H5Pget_layout(d->plist);
    if (!input_bytes(d->ndim, d->shape, manta_dtype_size(d->dtype), &d->bytes) ||
        !input_bytes(d->ndim, d->shape, H5Tget_size(d->type), &in_file)) {
        return manta_fail(MANTA_ECORRUPT, "%s: /%s: more elements than can be addressed", f->path, at);
    }
    if (d->layout == H5D_VIRTUAL || H5Pget_external_count(d->plist) != 0) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: /%s: its elements lie in another file; only what lies in the "
                          "file itself is read",
                          f->path, at);
    }
    if (in_file == 0) return MANTA_OK;
    stored = H5Dget_storage_size(d->id);
    if (d->layout == H5D_CHUNKED) {
        if (stored > f->size || in_file / GZIP_MAX_RATIO > stored) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: %zu bytes of elements from %llu stored ones", f->path,
                              at, in_file, (unsigned long long)stored);
        }
        return check_filters(f, at, d, stored);
    }
    if (stored < in_file || in_file > f->size) {
        return manta_fail(MANTA_ECORRUPT, "%s: /%s: its shape needs %zu bytes, the file stores %llu", f->path,
                          at, in_file, (unsigned long long)stored);
    }
    return MANTA_OK;
}

static manta_status dataset_open(const h5_file *f, const char *at, h5_dataset *d)
{
    *d = (h5_dataset){.id = -1, .type = -1, .space = -1, .plist = -1, .memory = -1};
    TRY(open_object(f, at, &d->id));
    if (d->id < 0 || H5Iget_type(d->id) != H5I_DATASET) {
        return manta_fail(MANTA_ENOENT, "%s: there is no dataset /%s", f->path, at);
    }
    TRY(dataset_shape(f, at, d));
    TRY(dataset_type(f, at, d));
    return dataset_storage(f, at, d);
}

/* Where the elements lie in the image, or NULL when they must be read. */
static const uint8_t *in_image(const h5_file *f, const h5_dataset *d)
{
    haddr_t at;

    if (d->layout != H5D_CONTIGUOUS || !d->as_stored || d->bytes == 0) return NULL;
    at = H5Dget_offset(d->id);
    if (at == HADDR_UNDEF || at > f->size || d->bytes > f->size - at) return NULL;
    if (((uintptr_t)f->data + at) % manta_dtype_size(d->dtype)) return NULL;
    return f->data + at;
}

static manta_status dataset_add(const h5_file *f, const char *at, const h5_dataset *d, manta_saved *s,
                                const char *name)
{
    const uint8_t *place = in_image(f, d);
    manta_array a;

    if (place) {
        a = manta_array_of(d->dtype, d->ndim, d->shape, (void *)(uintptr_t)place);
        return saved_add(s, name, &a);
    }
    TRY(saved_new_array(s, name, d->dtype, d->ndim, d->shape, &a));
    if (d->bytes && H5Dread(d->id, d->memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, a.data) < 0) {
        return h5_fail(f, at, "its elements cannot be read");
    }
    return MANTA_OK;
}

manta_status h5_read(h5_file *f, const char *at, manta_saved *s, const char *name)
{
    h5_dataset d;
    manta_status st;

    h5_enter();
    st = dataset_open(f, at, &d);
    if (!st) st = dataset_add(f, at, &d, s, name);
    dataset_release(&d);
    h5_leave();
    return st;
}

manta_status h5_shape(h5_file *f, const char *at, int *ndim, int64_t shape[MANTA_MAX_DIMS])
{
    h5_dataset d;
    manta_status st;

    h5_enter();
    st = dataset_open(f, at, &d);
    if (!st) {
        *ndim = d.ndim;
        memcpy(shape, d.shape, sizeof d.shape);
    }
    dataset_release(&d);
    h5_leave();
    return st;
}

/* ---- attributes ---- */

static manta_status attribute_fail(const h5_file *f, const char *at, const char *name)
{
    char what[96];

    snprintf(what, sizeof what, "attribute '%s' cannot be read", name);
    return h5_fail(f, at, what);
}

/* The texts of an open attribute; fixed and variable length. */
static manta_status read_texts(const h5_file *f, const char *at, const char *name, hid_t a, size_t max,
                               h5_names *out)
{
    hid_t type = H5Aget_type(a), space = H5Aget_space(a);
    hssize_t n = space >= 0 ? H5Sget_simple_extent_npoints(space) : -1;
    manta_status st = MANTA_OK;
    size_t size = type >= 0 ? H5Tget_size(type) : 0;

    if (type < 0 || n < 0) {
        st = attribute_fail(f, at, name);
    } else if (n == 0) {
        st = MANTA_OK; /* Keras writes an empty list as numbers */
    } else if (H5Tget_class(type) != H5T_STRING || n > MAX_NAMES) {
        st = manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' is not text", f->path, at, name);
    } else if (H5Tis_variable_str(type) > 0) {
        char **texts = mem_new((size_t)n * sizeof *texts);
        if (H5Aread(a, type, texts) < 0) st = attribute_fail(f, at, name);
        for (hssize_t i = 0; i < n && !st; i++) {
            if (texts[i] && strlen(texts[i]) > max) {
                st = manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' is longer than %zu bytes", f->path,
                                at, name, max);
            } else {
                vec_push(out, mem_strdup(texts[i] ? texts[i] : ""));
            }
        }
        for (hssize_t i = 0; i < n; i++) {
            if (texts[i]) H5free_memory(texts[i]);
        }
        mem_free(texts);
    } else if (size == 0 || (size_t)n > f->size / size || size > max) {
        st = manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' is larger than the file", f->path, at, name);
    } else {
        char *texts = mem_try((size_t)n * size);
        if (!texts) st = manta_fail(MANTA_ENOMEM, "%s: no memory for attribute '%s'", f->path, name);
        if (!st && H5Aread(a, type, texts) < 0) st = attribute_fail(f, at, name);
        for (hssize_t i = 0; i < n && !st; i++) {
            const char *text = texts + (size_t)i * size;
            vec_push(out, mem_strndup(text, strnlen(text, size)));
        }
        mem_try_free(texts);
    }
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return st;
}

/* Adds the texts of an attribute; *found says whether it is there. */
static manta_status texts_of(const h5_file *f, const char *at, const char *name, size_t max, h5_names *out,
                             bool *found)
{
    hid_t id, a = -1;
    htri_t there;
    manta_status st;

    *found = false;
    TRY(open_object(f, at, &id));
    if (id < 0) return manta_fail(MANTA_ENOENT, "%s: there is no /%s", f->path, at);
    there = H5Aexists(id, name);
    st = MANTA_OK;
    if (there < 0 || (there > 0 && (a = H5Aopen(id, name, H5P_DEFAULT)) < 0)) {
        st = attribute_fail(f, at, name);
    } else if (there > 0) {
        *found = true;
        st = read_texts(f, at, name, a, max, out);
    }
    if (a >= 0) H5Aclose(a);
    H5Oclose(id);
    return st;
}

manta_status h5_text(h5_file *f, const char *at, const char *attribute, size_t max, char **out)
{
    h5_names texts = {0};
    bool found = false;
    manta_status st;

    h5_enter();
    st = texts_of(f, at, attribute, max, &texts, &found);
    h5_leave();
    *out = NULL;
    if (!st && texts.n) {
        *out = texts.at[0];
        texts.at[0] = NULL;
    }
    h5_names_release(&texts);
    return st;
}

manta_status h5_texts(h5_file *f, const char *at, const char *attribute, h5_names *out, bool *found)
{
    manta_status st;

    h5_enter();
    st = texts_of(f, at, attribute, 1 << 16, out, found);
    for (int i = 0; !st && !*found; i++) {
        bool more = false;
        char *part = mem_printf("%s%d", attribute, i);
        st = texts_of(f, at, part, 1 << 16, out, &more);
        mem_free(part);
        if (st || !more) {
            *found = i > 0;
            break;
        }
    }
    h5_leave();
    if (st) h5_names_release(out);
    return st;
}
