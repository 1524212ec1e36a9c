/* safetensors.c - reading safetensors files.
 *
 * Nothing is believed before it is checked: the header's length against the
 * file, each shape against its offsets, and the offsets, sorted, against each
 * other. What is left is a partition of the data, so that every view that
 * safetensors_array() gives lies in the file. */
#include "format/safetensors/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "os/file.h"
#include "os/sys.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are used as they lie in the file");

/* The official library's limit on nesting. */
#define MAX_DEPTH 127

static const struct {
    const char *name;
    int bits;
    manta_dtype dtype; /* MANTA_DTYPE_COUNT: none of ours */
} types[] = {
    {"F32", 32, MANTA_DTYPE_F32},
    {"F64", 64, MANTA_DTYPE_F64},
    {"F16", 16, MANTA_DTYPE_F16},
    {"BF16", 16, MANTA_DTYPE_BF16},
    {"I32", 32, MANTA_DTYPE_I32},
    {"I64", 64, MANTA_DTYPE_I64},
    {"U8", 8, MANTA_DTYPE_U8},
    {"BOOL", 8, MANTA_DTYPE_BOOL},
    {"I8", 8, MANTA_DTYPE_COUNT},
    {"I16", 16, MANTA_DTYPE_COUNT},
    {"U16", 16, MANTA_DTYPE_COUNT},
    {"U32", 32, MANTA_DTYPE_COUNT},
    {"U64", 64, MANTA_DTYPE_COUNT},
    {"C64", 64, MANTA_DTYPE_COUNT},
    {"F8_E5M2", 8, MANTA_DTYPE_COUNT},
    {"F8_E4M3", 8, MANTA_DTYPE_COUNT},
    {"F8_E8M0", 8, MANTA_DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, MANTA_DTYPE_COUNT},
    {"F8_E5M2FNUZ", 8, MANTA_DTYPE_COUNT},
    {"F4", 4, MANTA_DTYPE_COUNT},
    {"F6_E2M3", 6, MANTA_DTYPE_COUNT},
    {"F6_E3M2", 6, MANTA_DTYPE_COUNT},
};

#define N_TYPES (sizeof types / sizeof *types)

static size_t type_find(const char *name)
{
    size_t i = 0;

    while (i < N_TYPES && strcmp(types[i].name, name) != 0) i++;
    return i;
}

/* ---- the header ---- */

static uint64_t le64(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

bool safetensors_is(const uint8_t *head, size_t n)
{
    uint64_t size = n >= 9 ? le64(head) : 0;

    return size >= 2 && size <= SAFETENSORS_MAX_HEADER && head[8] == '{';
}

/* What the official library refuses and a JSON parser does not see: nesting
 * beyond MAX_DEPTH, before a parser recurses into it, and the number -0, which
 * is no whole number there. NULL: nothing. Text that is no JSON may be misread
 * here; the parser refuses it anyway. */
static const char *find_fault(const char *text, size_t n)
{
    int depth = 0;
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\') i++;
            if (c == '"') quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH) return "is nested too deeply";
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == '-' && n - i > 2 && text[i + 1] == '0' && !strchr(".eE", text[i + 2])) {
            return "has the number -0";
        }
    }
    return NULL;
}

static manta_status fail_entry(const safetensors *s, const char *name, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: the tensor '%s' %s", s->path, name, what);
}

/* A number of the header that counts something. */
static bool get_size(const json_t *j, int64_t *out)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0) return false;
    *out = json_integer_value(j);
    return true;
}

/* The name of a type: a text, or as the official library also has it, an object with that one key and null. */
static const char *type_text(json_t *j)
{
    void *only = json_object_iter(j);

    if (json_is_string(j)) return json_string_value(j);
    if (json_object_size(j) == 1 && json_is_null(json_object_iter_value(only))) {
        return json_object_iter_key(only);
    }
    return NULL;
}

/* A tensor's entry is an object, or as the official library also has it, the three values in this order. */
static json_t *entry_field(json_t *j, const char *key, size_t place)
{
    return json_is_array(j) ? json_array_get(j, place) : json_object_get(j, key);
}

/* Bytes of a tensor, counted in bits as types below a byte need it; false when the product overflows. */
static bool count_bits(const safetensors_tensor *t, int bits, uint64_t *out)
{
    uint64_t n = 1;

    for (int i = 0; i < t->ndim; i++) {
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n)) return false;
    }
    return !__builtin_mul_overflow(n, (uint64_t)bits, out);
}

static manta_status read_tensor(const safetensors *s, const char *name, json_t *j, safetensors_tensor *t)
{
    json_t *shape = entry_field(j, "shape", 1), *offsets = entry_field(j, "data_offsets", 2);
    const char *type = type_text(entry_field(j, "dtype", 0));
    int64_t begin, end;
    uint64_t bits;
    size_t k;

    if (!json_is_object(j) && !(json_is_array(j) && json_array_size(j) == 3)) {
        return fail_entry(s, name, "is no object");
    }
    if (!type) return fail_entry(s, name, "has no dtype");
    if ((k = type_find(type)) == N_TYPES) {
        return manta_fail(MANTA_ECORRUPT, "%s: the tensor '%s' has dtype '%.32s', which there is not",
                          s->path, name, type);
    }
    t->type = types[k].name;
    t->known = types[k].dtype != MANTA_DTYPE_COUNT;
    if (!json_is_array(shape)) return fail_entry(s, name, "has no shape");
    t->ndim = (int)json_array_size(shape); /* the header's length bounds it */
    t->shape = mem_new((size_t)(t->ndim + 1) * sizeof *t->shape);
    for (int i = 0; i < t->ndim; i++) {
        if (!get_size(json_array_get(shape, (size_t)i), &t->shape[i])) {
            return fail_entry(s, name, "has a shape that is not of whole numbers from 0 on");
        }
    }
    if (json_array_size(offsets) != 2 || !get_size(json_array_get(offsets, 0), &begin) ||
        !get_size(json_array_get(offsets, 1), &end)) {
        return fail_entry(s, name, "has no two data_offsets");
    }
    t->begin = (uint64_t)begin;
    t->end = (uint64_t)end;
    if (!count_bits(t, types[k].bits, &bits))
        return fail_entry(s, name, "has a shape beyond what can be addressed");
    if (bits % 8 != 0) return fail_entry(s, name, "does not end at a whole byte");
    if (t->end < t->begin || t->end - t->begin != bits / 8) {
        return manta_fail(
            MANTA_ECORRUPT,
            "%s: the tensor '%s' has data_offsets %lld to %lld, its dtype and shape need %llu bytes", s->path,
            name, (long long)begin, (long long)end, (unsigned long long)(bits / 8));
    }
    return MANTA_OK;
}

static manta_status read_metadata(safetensors *s, json_t *j)
{
    const char *key;
    json_t *value;

    if (json_is_null(j)) return MANTA_OK;
    if (!json_is_object(j)) return manta_fail(MANTA_ECORRUPT, "%s: __metadata__ is no object", s->path);
    s->metadata = mem_new((json_object_size(j) + 1) * sizeof *s->metadata);
    json_object_foreach(j, key, value)
    {
        if (!json_is_string(value)) {
            return manta_fail(MANTA_ECORRUPT, "%s: __metadata__ '%s' is no text", s->path, key);
        }
        s->metadata[s->n_metadata++] =
            (safetensors_pair){mem_strdup(key), mem_strdup(json_string_value(value))};
    }
    return MANTA_OK;
}

static int by_place(const void *a, const void *b)
{
    const safetensors_tensor *x = a, *y = b;

    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name); /* empty ones: any order, but always the same */
}

static manta_status check_cover(safetensors *s)
{
    uint64_t at = 0, size = s->size - s->data;

    if (s->n) qsort(s->tensors, (size_t)s->n, sizeof *s->tensors, by_place);
    for (int i = 0; i < s->n; i++) {
        const safetensors_tensor *t = &s->tensors[i];
        if (t->begin != at) {
            return manta_fail(
                MANTA_ECORRUPT,
                "%s: the tensor '%s' begins at byte %llu of the data, expected %llu, where the one "
                "before it ends",
                s->path, t->name, (unsigned long long)t->begin, (unsigned long long)at);
        }
        at = t->end;
    }
    if (at != size) {
        return manta_fail(MANTA_ECORRUPT, "%s: the tensors take %llu bytes, the file has %llu for them",
                          s->path, (unsigned long long)at, (unsigned long long)size);
    }
    return MANTA_OK;
}

static manta_status read_entries(safetensors *s, json_t *root)
{
    const char *name;
    json_t *value;
    void *m = NULL;

    if (!json_is_object(root)) return manta_fail(MANTA_ECORRUPT, "%s: the header is no object", s->path);
    TRY(mem_try_array((int64_t)json_object_size(root) + 1, sizeof *s->tensors, "the list of tensors", &m));
    s->tensors = m;
    json_object_foreach(root, name, value)
    {
        safetensors_tensor *t = &s->tensors[s->n];
        if (strcmp(name, "__metadata__") == 0) {
            TRY(read_metadata(s, value));
            continue;
        }
        t->name = mem_strdup(name);
        s->n++;
        TRY(read_tensor(s, name, value, t));
    }
    return check_cover(s);
}

static manta_status read_header(safetensors *s)
{
    const char *text = (const char *)s->file + 8, *fault;
    json_error_t error;
    uint64_t n;

    if (s->size < 8) {
        return manta_fail(MANTA_ECORRUPT, "%s has %zu bytes, a safetensors file at least 8", s->path,
                          s->size);
    }
    n = le64(s->file);
    if (n > SAFETENSORS_MAX_HEADER) {
        return manta_fail(MANTA_ECORRUPT, "%s: the header has %llu bytes, expected at most %d", s->path,
                          (unsigned long long)n, SAFETENSORS_MAX_HEADER);
    }
    if (n > s->size - 8) {
        return manta_fail(MANTA_ECORRUPT, "%s: the header has %llu bytes, and the file only %zu", s->path,
                          (unsigned long long)n, s->size);
    }
    s->data = 8 + (size_t)n;
    if ((fault = find_fault(text, (size_t)n))) {
        return manta_fail(MANTA_ECORRUPT, "%s: the header %s", s->path, fault);
    }
    json_t *root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!root) {
        return manta_fail(MANTA_ECORRUPT, "%s: the header at offset %d: %s", s->path, 8 + error.position,
                          error.text);
    }
    manta_status st = read_entries(s, root);
    json_decref(root);
    return st;
}

/* ---- opening ---- */

manta_status safetensors_parse(const char *path, uint8_t *data, size_t size, safetensors *out)
{
    safetensors s = {.path = mem_strdup(path), .file = data, .size = size, .borrowed = true};
    manta_status st = read_header(&s);

    if (st) {
        safetensors_release(&s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}

manta_status safetensors_read(const char *path, safetensors *out)
{
    void *data = NULL;
    size_t size = 0;
    manta_status st;

    TRY(file_read(path, SIZE_MAX / 2, &data, &size));
    if ((st = safetensors_parse(path, data, size, out))) {
        mem_try_free(data);
        return st;
    }
    out->borrowed = false;
    return MANTA_OK;
}

static manta_status map_file(const char *path, uint8_t **out, size_t *size)
{
    struct stat sb;
    manta_status st = MANTA_OK;
    void *p = MAP_FAILED;
    int fd;

    do fd = os->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return file_fail(errno, "opening", path);
    if (os->fstat(fd, &sb)) {
        st = file_fail(errno, "looking at", path);
    } else if (!S_ISREG(sb.st_mode)) {
        st = manta_fail(MANTA_EINVAL, "%s is no regular file, expected one", path);
    } else if (sb.st_size < 8) {
        st = manta_fail(MANTA_ECORRUPT, "%s has %lld bytes, a safetensors file at least 8", path,
                        (long long)sb.st_size);
    } else {
        p = os->mmap(NULL, (size_t)sb.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) st = file_fail(errno, "mapping", path);
    }
    os->close(fd);
    if (st) return st;
    *out = p;
    *size = (size_t)sb.st_size;
    return MANTA_OK;
}

manta_status safetensors_map(const char *path, safetensors *out)
{
    uint8_t *data = NULL;
    size_t size = 0;
    manta_status st;

    TRY(map_file(path, &data, &size));
    if ((st = safetensors_parse(path, data, size, out))) {
        os->munmap(data, size);
        return st;
    }
    out->borrowed = false;
    out->mapped = true;
    return MANTA_OK;
}

void safetensors_release(safetensors *s)
{
    for (int i = 0; i < s->n; i++) {
        mem_free(s->tensors[i].name);
        mem_free(s->tensors[i].shape);
        mem_try_free(s->tensors[i].copy);
    }
    for (int i = 0; i < s->n_metadata; i++) {
        mem_free((char *)(uintptr_t)s->metadata[i].key);
        mem_free((char *)(uintptr_t)s->metadata[i].value);
    }
    mem_try_free(s->tensors);
    mem_free(s->metadata);
    mem_free(s->path);
    if (s->mapped) {
        os->munmap(s->file, s->size);
    } else if (!s->borrowed) {
        mem_try_free(s->file);
    }
    *s = (safetensors){0};
}

/* ---- asking ---- */

manta_status safetensors_array(safetensors *s, int i, manta_array *out)
{
    safetensors_tensor *t = &s->tensors[i];
    manta_dtype dtype = types[type_find(t->type)].dtype;
    uint8_t *at = s->file + s->data + t->begin;

    if (!t->known) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: the tensor '%s' has dtype %s, which Manta has not",
                          s->path, t->name, t->type);
    }
    if (t->ndim > MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the tensor '%s' has %d axes, more than the %d there may be", s->path, t->name,
                          t->ndim, MANTA_MAX_DIMS);
    }
    if ((uintptr_t)at % manta_dtype_size(dtype) != 0) {
        /* A header of odd length: legal, and nothing a pointer to float may point to. */
        if (!t->copy) {
            size_t n = (size_t)(t->end - t->begin);
            if (!(t->copy = mem_try_raw(n ? n : 1))) {
                return manta_fail(MANTA_ENOMEM, "%s: no memory for the %zu bytes of '%s'", s->path, n,
                                  t->name);
            }
            memcpy(t->copy, at, n);
        }
        at = t->copy;
    }
    *out = manta_array_of(dtype, t->ndim, t->shape, at);
    return MANTA_OK;
}

int safetensors_find(const safetensors *s, const char *name)
{
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->tensors[i].name, name) == 0) return i;
    }
    return -1;
}

const char *safetensors_note(const safetensors *s, const char *key)
{
    for (int i = 0; i < s->n_metadata; i++) {
        if (strcmp(s->metadata[i].key, key) == 0) return s->metadata[i].value;
    }
    return NULL;
}
