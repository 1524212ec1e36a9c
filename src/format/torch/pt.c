/* pt.c - reading what torch.save() wrote.
 *
 * Three steps: the directory of the archive (zip.c), the pickle as values
 * (pickle.c), and here their meaning: dictionaries are walked, calls of
 * _rebuild_tensor_v2 become views. A view is checked against its storage before
 * it exists, a storage against its member of the archive. */
#include "format/torch/pt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "format/torch/pickle.h"

#define MAX_PICKLE (64 << 20)
#define MAX_DEPTH  16 /* of dictionaries in dictionaries */
#define MAX_VISITS (1 << 20) /* values that a walk comes by; sharing can make few look many */
#define MAX_REPEAT ((int64_t)64 << 20) /* bytes that a view with strides of 0 may make of a smaller storage */

enum { G_DICT, G_TENSOR, G_PARAMETER, G_SIZE, G_DEVICE, G_STORAGES };

#define N_STORAGES 15

static const pickle_global globals[] = {
    [G_DICT] = {"collections", "OrderedDict", PICKLE_MAKES_DICT},
    [G_TENSOR] = {"torch._utils", "_rebuild_tensor_v2", PICKLE_CALLED},
    [G_PARAMETER] = {"torch._utils", "_rebuild_parameter", PICKLE_CALLED},
    [G_SIZE] = {"torch", "Size", PICKLE_CALLED},
    [G_DEVICE] = {"torch", "device", PICKLE_CALLED},
    [G_STORAGES] = {"torch", "FloatStorage", PICKLE_NAMED},
    {"torch", "DoubleStorage", PICKLE_NAMED},
    {"torch", "HalfStorage", PICKLE_NAMED},
    {"torch", "BFloat16Storage", PICKLE_NAMED},
    {"torch", "IntStorage", PICKLE_NAMED},
    {"torch", "LongStorage", PICKLE_NAMED},
    {"torch", "ByteStorage", PICKLE_NAMED},
    {"torch", "BoolStorage", PICKLE_NAMED},
    {"torch", "ShortStorage", PICKLE_NAMED},
    {"torch", "CharStorage", PICKLE_NAMED},
    {"torch", "ComplexFloatStorage", PICKLE_NAMED},
    {"torch", "ComplexDoubleStorage", PICKLE_NAMED},
    {"torch", "QInt8Storage", PICKLE_NAMED},
    {"torch", "QUInt8Storage", PICKLE_NAMED},
    {"torch", "QInt32Storage", PICKLE_NAMED},
    /* dtypes and layouts, which optimizers and configurations mention */
    {"torch", "float32", PICKLE_NAMED},
    {"torch", "float64", PICKLE_NAMED},
    {"torch", "float16", PICKLE_NAMED},
    {"torch", "bfloat16", PICKLE_NAMED},
    {"torch", "int8", PICKLE_NAMED},
    {"torch", "int16", PICKLE_NAMED},
    {"torch", "int32", PICKLE_NAMED},
    {"torch", "int64", PICKLE_NAMED},
    {"torch", "uint8", PICKLE_NAMED},
    {"torch", "bool", PICKLE_NAMED},
    {"torch", "complex64", PICKLE_NAMED},
    {"torch", "complex128", PICKLE_NAMED},
};

#define N_GLOBALS (int)(sizeof globals / sizeof *globals)

/* Beside the storages of the table, in the same order. */
static const struct {
    const char *name;
    manta_dtype dtype;
    size_t size;
} storage_types[N_STORAGES] = {
    {"torch.FloatStorage", MANTA_DTYPE_F32, 4},
    {"torch.DoubleStorage", MANTA_DTYPE_F64, 8},
    {"torch.HalfStorage", MANTA_DTYPE_F16, 2},
    {"torch.BFloat16Storage", MANTA_DTYPE_BF16, 2},
    {"torch.IntStorage", MANTA_DTYPE_I32, 4},
    {"torch.LongStorage", MANTA_DTYPE_I64, 8},
    {"torch.ByteStorage", MANTA_DTYPE_U8, 1},
    {"torch.BoolStorage", MANTA_DTYPE_BOOL, 1},
    {"torch.ShortStorage", MANTA_DTYPE_COUNT, 2},
    {"torch.CharStorage", MANTA_DTYPE_COUNT, 1},
    {"torch.ComplexFloatStorage", MANTA_DTYPE_COUNT, 8},
    {"torch.ComplexDoubleStorage", MANTA_DTYPE_COUNT, 16},
    {"torch.QInt8Storage", MANTA_DTYPE_COUNT, 1},
    {"torch.QUInt8Storage", MANTA_DTYPE_COUNT, 1},
    {"torch.QInt32Storage", MANTA_DTYPE_COUNT, 4},
};

static const uint8_t legacy_magic[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20};

/* A reading under way. */
typedef struct reading {
    pt_file *f;
    const char *path;
    pickle p;
    char *root; /* "sd/" */
    MAP(int) members; /* name -> entry of the archive */
    MAP(int) storages; /* key -> storage */
    int visits;
} reading;

static bool is_legacy(const uint8_t *head, size_t n)
{
    return n >= sizeof legacy_magic && memcmp(head, legacy_magic, sizeof legacy_magic) == 0;
}

bool pt_is(const uint8_t *head, size_t n)
{
    static const char data[] = "/data.pkl";
    size_t name;

    if (is_legacy(head, n)) return true;
    if (n < 30 || memcmp(head, "PK\3\4", 4) != 0) return false;
    name = (size_t)head[26] | (size_t)head[27] << 8;
    return name <= n - 30 && name > sizeof data - 1 &&
           memcmp(head + 30 + name - (sizeof data - 1), data, sizeof data - 1) == 0;
}

static const pickle_value *value_at(const reading *r, uint32_t i)
{
    return &r->p.values[i];
}

static bool is_call(const pickle_value *v, int callee)
{
    return v->kind == PICKLE_CALL && v->callee == callee;
}

static manta_status fail_tensor(const reading *r, const char *name, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: the tensor '%s' %s", r->path, name, what);
}

/* ---- storages ---- */

static const zip_entry *find_member(const reading *r, const char *name)
{
    char *full = mem_printf("%s%s", r->root, name);
    const int *i = map_find(&r->members, full);

    mem_free(full);
    return i ? &r->f->z.entries[*i] : NULL;
}

static manta_status load_storage(reading *r, const char *key, int type, int64_t n)
{
    char *name = mem_printf("data/%s", key);
    const zip_entry *e = find_member(r, name);
    pt_storage s = {.dtype = storage_types[type].dtype, .type = storage_types[type].name, .n = n};
    manta_status st;

    mem_free(name);
    if (!e)
        return manta_fail(MANTA_ECORRUPT, "%s has no member %sdata/%s, which its pickle names", r->path,
                          r->root, key);
    if (n < 0 || (uint64_t)n != e->size / storage_types[type].size || e->size % storage_types[type].size) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the storage %s has %zu bytes, its pickle says %" PRId64 " elements of %zu",
                          r->path, key, e->size, n, storage_types[type].size);
    }
    if ((st = zip_extract(&r->f->z, e, &s.bytes, &s.owned))) return st;
    if (!s.owned && (uintptr_t)s.bytes % storage_types[type].size != 0) {
        /* A foreign archive that aligns nothing. */
        if (!(s.owned = mem_try_raw(e->size ? e->size : 1))) {
            return manta_fail(MANTA_ENOMEM, "%s: no memory for the %zu bytes of storage %s", r->path, e->size,
                              key);
        }
        memcpy(s.owned, s.bytes, e->size);
        s.bytes = s.owned;
    }
    *map_put(&r->storages, key) = (int)r->f->storages.n;
    vec_push(&r->f->storages, s);
    return MANTA_OK;
}

/* ("storage", torch.FloatStorage, "0", "cpu", 6) */
static manta_status find_storage(reading *r, const char *name, const pickle_value *v, int *out)
{
    const pickle_value *id, *type, *key, *n;
    const int *known;
    char text[64];
    manta_status st;

    if (v->kind != PICKLE_PERSISTENT) return fail_tensor(r, name, "is a view of no storage");
    id = value_at(r, v->u.items[0]);
    if (id->kind != PICKLE_TUPLE || id->n != 5 || !pickle_is_text(value_at(r, id->u.items[0]), "storage")) {
        return fail_tensor(r, name, "has a storage that is not described as one");
    }
    type = value_at(r, id->u.items[1]);
    key = value_at(r, id->u.items[2]);
    n = value_at(r, id->u.items[4]);
    if (type->kind != PICKLE_GLOBAL || type->u.i < G_STORAGES || type->u.i >= G_STORAGES + N_STORAGES ||
        key->kind != PICKLE_TEXT || n->kind != PICKLE_INT) {
        return fail_tensor(r, name, "has a storage that is not described as one");
    }
    if (key->n == 0 || key->n >= sizeof text || memchr(key->u.text, '\0', key->n) ||
        memchr(key->u.text, '/', key->n)) {
        return fail_tensor(r, name, "has a storage whose key is no name");
    }
    memcpy(text, key->u.text, key->n);
    text[key->n] = '\0';
    if (!(known = map_find(&r->storages, text))) {
        if ((st = load_storage(r, text, (int)(type->u.i - G_STORAGES), n->u.i))) return st;
        known = map_find(&r->storages, text);
    }
    *out = *known;
    if (r->f->storages.at[*out].type != storage_types[type->u.i - G_STORAGES].name ||
        r->f->storages.at[*out].n != n->u.i) {
        return fail_tensor(r, name, "describes its storage otherwise than another tensor does");
    }
    return MANTA_OK;
}

/* ---- tensors ---- */

/* A tuple of whole numbers from 0 on, or torch.Size of one; as many as there is room for. */
static manta_status get_numbers(const reading *r, const char *name, const pickle_value *v, int64_t *out,
                                int *n)
{
    if (is_call(v, G_SIZE)) {
        v = value_at(r, v->u.items[0]);
        if (v->n == 1 && value_at(r, v->u.items[0])->kind == PICKLE_TUPLE) v = value_at(r, v->u.items[0]);
    }
    if (v->kind != PICKLE_TUPLE) return fail_tensor(r, name, "has no shape or strides");
    *n = (int)v->n;
    for (uint32_t i = 0; i < v->n; i++) {
        const pickle_value *x = value_at(r, v->u.items[i]);
        if (x->kind != PICKLE_INT || x->u.i < 0)
            return fail_tensor(r, name, "has a shape or strides below 0");
        if (i < MANTA_MAX_DIMS) out[i] = x->u.i;
    }
    return MANTA_OK;
}

/* Whether the view lies within n elements; also how many it has. */
static bool fits_storage(const manta_array *a, int64_t offset, int64_t n, int64_t *count)
{
    int64_t last = offset;

    *count = 1;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] == 0) {
            *count = 0;
            return offset <= n;
        }
    }
    for (int i = 0; i < a->ndim; i++) {
        int64_t reach;
        if (__builtin_mul_overflow(*count, a->shape[i], count)) return false;
        if (__builtin_mul_overflow(a->shape[i] - 1, a->strides[i], &reach)) return false;
        if (__builtin_add_overflow(last, reach, &last)) return false;
    }
    return last < n;
}

/* _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks[, metadata]) */
static manta_status add_tensor(reading *r, const char *name, const pickle_value *call)
{
    const pickle_value *args = value_at(r, call->u.items[0]), *offset;
    pt_tensor t = {0};
    const pt_storage *s;
    int64_t count = 0, bytes;
    int n_strides = 0;

    if (args->n < 6 || args->n > 7) return fail_tensor(r, name, "is made from too few or too many arguments");
    offset = value_at(r, args->u.items[1]);
    TRY(find_storage(r, name, value_at(r, args->u.items[0]), &t.storage));
    s = &r->f->storages.at[t.storage];
    if (offset->kind != PICKLE_INT || offset->u.i < 0)
        return fail_tensor(r, name, "has no offset in its storage");
    TRY(get_numbers(r, name, value_at(r, args->u.items[2]), t.view.shape, &t.view.ndim));
    TRY(get_numbers(r, name, value_at(r, args->u.items[3]), t.view.strides, &n_strides));
    if (t.view.ndim != n_strides) return fail_tensor(r, name, "has as many strides as its shape has not");
    t.view.dtype = s->dtype;
    if (t.view.ndim <= MANTA_MAX_DIMS) {
        if (!fits_storage(&t.view, offset->u.i, s->n, &count))
            return fail_tensor(r, name, "reaches beyond its storage");
        if (count > s->n && (__builtin_mul_overflow(count, 16, &bytes) || bytes > MAX_REPEAT)) {
            return fail_tensor(r, name, "repeats the elements of its storage too often");
        }
        size_t size = manta_dtype_size(s->dtype);
        t.view.data = (void *)(uintptr_t)(s->bytes + (size_t)offset->u.i * size);
    }
    t.name = mem_strdup(name);
    vec_push(&r->f->tensors, t);
    return MANTA_OK;
}

/* ---- the dictionary ---- */

static manta_status visit_value(reading *r, const char *name, uint32_t id, int depth);

static void add_note(reading *r, const char *name, char *text)
{
    vec_push(&r->f->notes, (manta_note){mem_strdup(name), text});
}

/* The key's text, owned by the caller; NULL when it is neither text nor number. */
static char *key_text(const pickle_value *k)
{
    if (k->kind == PICKLE_INT) return mem_printf("%" PRId64, k->u.i);
    if (k->kind == PICKLE_TEXT && !memchr(k->u.text, '\0', k->n)) return mem_strndup(k->u.text, k->n);
    return NULL;
}

static manta_status visit_part(reading *r, const char *name, const char *key, uint32_t id, int depth)
{
    char *full = mem_printf("%s%s%s", name, name[0] ? "." : "", key);
    manta_status st = visit_value(r, full, id, depth + 1);

    mem_free(full);
    return st;
}

static manta_status visit_parts(reading *r, const char *name, const pickle_value *v, int depth)
{
    uint32_t step = v->kind == PICKLE_DICT ? 2 : 1, n = v->n;
    const uint32_t *items = v->u.items; /* values do not change any more */

    if (depth >= MAX_DEPTH)
        return manta_fail(MANTA_ECORRUPT, "%s: '%.80s' is nested too deeply", r->path, name);
    for (uint32_t i = 0; i < n; i += step) {
        char *key = step == 2 ? key_text(value_at(r, items[i])) : mem_printf("%" PRIu32, i);
        manta_status st;
        if (!key) return manta_fail(MANTA_ECORRUPT, "%s: '%.80s' has a key that is no name", r->path, name);
        st = visit_part(r, name, key, items[i + step - 1], depth);
        mem_free(key);
        if (st) return st;
    }
    return MANTA_OK;
}

static manta_status visit_value(reading *r, const char *name, uint32_t id, int depth)
{
    const pickle_value *v = value_at(r, id), *args;

    if (++r->visits > MAX_VISITS)
        return manta_fail(MANTA_ECORRUPT, "%s: its pickle has too many values", r->path);
    switch (v->kind) {
    case PICKLE_DICT:
    case PICKLE_LIST:
    case PICKLE_TUPLE: return visit_parts(r, name, v, depth);
    case PICKLE_CALL:
        if (v->callee == G_PARAMETER) {
            args = value_at(r, v->u.items[0]);
            if (args->n < 1) return fail_tensor(r, name, "is a parameter of nothing");
            v = value_at(r, args->u.items[0]);
            if (!is_call(v, G_TENSOR)) return fail_tensor(r, name, "is a parameter of no tensor");
        }
        return is_call(v, G_TENSOR) ? add_tensor(r, name, v) : MANTA_OK;
    case PICKLE_INT: add_note(r, name, mem_printf("%" PRId64, v->u.i)); return MANTA_OK;
    case PICKLE_BOOL: add_note(r, name, mem_strdup(v->u.i ? "true" : "false")); return MANTA_OK;
    case PICKLE_FLOAT: add_note(r, name, mem_printf("%.17g", v->u.f)); return MANTA_OK;
    case PICKLE_TEXT:
        if (!memchr(v->u.text, '\0', v->n)) add_note(r, name, mem_strndup(v->u.text, v->n));
        return MANTA_OK;
    default: return MANTA_OK;
    }
}

/* ---- the archive ---- */

/* Finds R/data.pkl; sets root and the table of members. */
static manta_status find_root(reading *r)
{
    const zip *z = &r->f->z;
    static const char data[] = "/data.pkl";

    for (int i = 0; i < z->n; i++) {
        const char *name = z->entries[i].name, *slash = strchr(name, '/');
        if (map_find(&r->members, name)) {
            return manta_fail(MANTA_ECORRUPT, "%s: two members are called '%.80s'", r->path, name);
        }
        *map_put(&r->members, name) = i;
        if (slash && strcmp(slash, data) == 0 && !r->root)
            r->root = mem_strndup(name, (size_t)(slash - name) + 1);
    }
    if (!r->root) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s has no member NAME/data.pkl, expected an archive of torch.save()", r->path);
    }
    return MANTA_OK;
}

/* The bytes of a small member as text; MANTA_OK and "" when it is not there. */
static manta_status small_text(const reading *r, const char *name, char *text, size_t size)
{
    const zip_entry *e = find_member(r, name);
    const uint8_t *bytes = NULL;
    void *owned = NULL;

    text[0] = '\0';
    if (!e) return MANTA_OK;
    if (e->size >= size)
        return manta_fail(MANTA_ECORRUPT, "%s: the member %s%s is too long", r->path, r->root, name);
    TRY(zip_extract(&r->f->z, e, &bytes, &owned));
    memcpy(text, bytes, e->size);
    text[e->size] = '\0';
    mem_try_free(owned);
    return MANTA_OK;
}

static manta_status check_kind(const reading *r)
{
    char text[32], *end;
    long version;

    if (find_member(r, "constants.pkl")) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s is a TorchScript program; only dictionaries of tensors are read", r->path);
    }
    TRY(small_text(r, "version", text, sizeof text));
    version = strtol(text, &end, 10);
    if (end == text || version < 1 || version > 10) {
        return manta_fail(MANTA_ECORRUPT, "%s: the member %sversion holds no number from 1 to 10", r->path,
                          r->root);
    }
    TRY(small_text(r, "byteorder", text, sizeof text));
    if (strcmp(text, "big") == 0) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s was written on a big-endian machine", r->path);
    }
    if (text[0] && strcmp(text, "little") != 0) {
        return manta_fail(MANTA_ECORRUPT, "%s: the member %sbyteorder holds neither little nor big", r->path,
                          r->root);
    }
    return MANTA_OK;
}

static manta_status read_pickle(reading *r)
{
    const zip_entry *e = find_member(r, "data.pkl");
    const uint8_t *bytes = NULL;
    void *owned = NULL;
    manta_status st;

    if (e->size > MAX_PICKLE)
        return manta_fail(MANTA_ECORRUPT, "%s: a pickle of %zu bytes is too long", r->path, e->size);
    TRY(zip_extract(&r->f->z, e, &bytes, &owned));
    st = pickle_parse(r->path, bytes, e->size, globals, N_GLOBALS, &r->p);
    if (!st) st = visit_value(r, "", r->p.root, 0);
    mem_try_free(owned);
    return st;
}

static manta_status read_archive(reading *r)
{
    const input *in = &r->f->in;

    if (is_legacy(in->data, in->size)) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "%s is of the kind that torch wrote before 1.6; load it with torch and save it again", r->path);
    }
    TRY(zip_parse(in->path, in->data, in->size, &r->f->z));
    TRY(find_root(r));
    TRY(check_kind(r));
    return read_pickle(r);
}

manta_status pt_parse(input *in, pt_file *out)
{
    pt_file f = {.in = *in};
    reading r = {.f = &f, .path = in->path};
    manta_status st = read_archive(&r);

    pickle_release(&r.p);
    map_release(&r.members);
    map_release(&r.storages);
    mem_free(r.root);
    if (st) {
        f.in = (input){0};
        pt_release(&f);
        return st;
    }
    *out = f;
    *in = (input){0};
    return MANTA_OK;
}

manta_status pt_read(const char *path, pt_file *out)
{
    input in = {0};
    manta_status st;

    TRY(input_read(path, &in));
    st = pt_parse(&in, out);
    input_release(&in);
    return st;
}

void pt_release(pt_file *f)
{
    for (size_t i = 0; i < f->storages.n; i++) mem_try_free(f->storages.at[i].owned);
    for (size_t i = 0; i < f->tensors.n; i++) mem_free(f->tensors.at[i].name);
    for (size_t i = 0; i < f->notes.n; i++) {
        mem_free((char *)(uintptr_t)f->notes.at[i].name);
        mem_free((char *)(uintptr_t)f->notes.at[i].text);
    }
    vec_release(&f->storages);
    vec_release(&f->tensors);
    vec_release(&f->notes);
    zip_release(&f->z);
    input_release(&f->in);
}

manta_status pt_array(const pt_file *f, int i, manta_array *out)
{
    const pt_tensor *t = &f->tensors.at[i];
    const pt_storage *s = &f->storages.at[t->storage];

    if (s->dtype == MANTA_DTYPE_COUNT) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: the tensor '%s' lies in a %s, a type that Manta has not",
                          f->in.path, t->name, s->type);
    }
    if (t->view.ndim > MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the tensor '%s' has %d axes, more than the %d there may be", f->in.path,
                          t->name, t->view.ndim, MANTA_MAX_DIMS);
    }
    *out = t->view;
    return MANTA_OK;
}
