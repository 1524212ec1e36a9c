/* h5_text.c - texts of HDF5 files: the attributes of an object that hold text.
 *
 * A text has a fixed length and lies in the attribute itself, or it lies in a
 * heap of texts and the attribute says where. A list that is too long for one
 * attribute goes on in others with numbers behind the name, as Keras writes it.
 * All texts of a list together are never longer than the file. */
#include "format/hdf5/h5.h"

#include <string.h>

#include "base/mem.h"
#include "format/hdf5/h5_part.h"

enum { MAX_NAMES = 1 << 20 }; /* in one list of texts */

/* A list of texts being read: how much more there may be. */
typedef struct texts {
    const h5_file *f;
    const char *at, *name; /* for sentences */
    size_t max; /* bytes of one */
    uint64_t bytes; /* of all so far */
    h5_texts_heap heap;
    h5_names *out;
} texts;

static manta_status add_text(texts *t, const uint8_t *p, size_t n)
{
    n = strnlen((const char *)p, n);
    t->bytes += n;
    if (n > t->max || t->bytes > t->f->size) {
        return manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' is longer than %zu bytes", t->f->path,
                          t->at, t->name, n > t->max ? t->max : t->f->size);
    }
    vec_push(t->out, mem_strndup((const char *)p, n));
    return MANTA_OK;
}

/* Of fixed length: filled up with zeros, or with spaces. */
static manta_status add_fixed(texts *t, const h5_type *type, h5_in *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *p = h5_skip(data, type->size);
        size_t size = type->size;
        if (!p) break;
        while (type->spaces && size && p[size - 1] == ' ') size--;
        TRY(add_text(t, p, size));
    }
    return h5_whole(data, "an attribute");
}

/* Of variable length: bytes, the collection they are in, and which of it. */
static manta_status add_variable(texts *t, h5_in *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bytes = h5_take(data, 4), at = h5_take_address(data), number = h5_take(data, 4);
        h5_in text = {0};
        TRY(h5_whole(data, "an attribute"));
        if (bytes == 0 || at == 0 || at == H5_NOWHERE) {
            TRY(add_text(t, data->p, 0));
            continue;
        }
        TRY(h5_texts_heap_find(t->f, &t->heap, at, number, &text));
        if (bytes > text.n)
            return h5_bad(t->f, text.p, "a text has %llu bytes where %zu are left", (unsigned long long)bytes,
                          text.n);
        TRY(add_text(t, text.p, (size_t)bytes));
    }
    return MANTA_OK;
}

static manta_status add_texts(texts *t, const h5_attribute *a)
{
    h5_in data = a->data;
    h5_space space;
    h5_type type;
    uint64_t n = 1;

    TRY(h5_type_of(t->f, a->type, a->type_shared, &type));
    TRY(h5_space_parse(t->f, a->space, &space));
    for (int i = 0; i < space.ndim; i++) {
        if (space.dims[i] && n > MAX_NAMES / space.dims[i]) {
            return manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' has more than %d texts", t->f->path,
                              t->at, t->name, MAX_NAMES);
        }
        n *= space.dims[i];
    }
    if (space.none || n == 0) return MANTA_OK; /* Keras writes an empty list as numbers */
    if (type.class == H5_STRING) return add_fixed(t, &type, &data, n);
    if (type.class == H5_VARIABLE && type.is_text) return add_variable(t, &data, n);
    return manta_fail(MANTA_ECORRUPT, "%s: /%s: attribute '%s' is not text", t->f->path, t->at, t->name);
}

manta_status h5_attribute_texts(const h5_file *f, const char *at, const h5_messages *m, const char *name,
                                size_t max, h5_names *out, bool *found)
{
    texts t = {.f = f, .at = at, .name = name, .max = max, .heap = {.at = H5_NOWHERE}, .out = out};
    h5_attribute a;
    manta_status st;

    TRY(h5_attribute_find(f, m, name, found, &a));
    if (!*found) return MANTA_OK;
    st = add_texts(&t, &a);
    vec_release(&t.heap.objects);
    return st;
}

/* The messages of what lies at `at`. */
static manta_status messages_at(h5_file *f, const char *at, h5_messages *out)
{
    uint64_t object;

    TRY(h5_object_at(f, at, &object));
    if (object == H5_NOWHERE) return manta_fail(MANTA_ENOENT, "%s: there is no /%s", f->path, at);
    return h5_object_read(f, object, out);
}

manta_status h5_text(h5_file *f, const char *at, const char *attribute, size_t max, char **out)
{
    h5_messages m = {0};
    h5_names found = {0};
    bool there = false;
    manta_status st;

    *out = NULL;
    TRY(messages_at(f, at, &m));
    st = h5_attribute_texts(f, at, &m, attribute, max, &found, &there);
    vec_release(&m);
    if (!st && found.n) {
        *out = found.at[0];
        found.at[0] = NULL;
    }
    h5_names_release(&found);
    return st;
}

manta_status h5_texts(h5_file *f, const char *at, const char *attribute, h5_names *out, bool *found)
{
    enum { LONGEST = 1 << 16 };
    h5_messages m = {0};
    manta_status st;

    *found = false;
    TRY(messages_at(f, at, &m));
    st = h5_attribute_texts(f, at, &m, attribute, LONGEST, out, found);
    for (int i = 0; !st && !*found; i++) {
        bool more = false;
        char *part = mem_printf("%s%d", attribute, i);
        st = h5_attribute_texts(f, at, &m, part, LONGEST, out, &more);
        mem_free(part);
        if (st || !more) {
            *found = i > 0;
            break;
        }
    }
    vec_release(&m);
    if (st) h5_names_release(out);
    return st;
}
