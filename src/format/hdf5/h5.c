/* h5.c - HDF5 files in memory: the superblock and paths.
 *
 * Paths are walked link by link, so that a soft or external link is seen and
 * never followed. h5_part.h says what the other files do, and what all of them
 * keep to. */
#include "format/hdf5/h5.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/hdf5/h5_part.h"

enum { MAX_DEPTH = 64 }; /* components of a path */

/* ---- the superblock ---- */

#define SIGNATURE "\211HDF\r\n\032\n"

bool h5_is(const uint8_t *data, size_t size)
{
    return size >= 8 && memcmp(data, SIGNATURE, 8) == 0;
}

static bool is_size(int n)
{
    return n == 2 || n == 4 || n == 8;
}

static manta_status take_sizes(h5_file *f, h5_in *in)
{
    f->address_size = h5_take_int(in, 1);
    f->length_size = h5_take_int(in, 1);
    TRY(h5_whole(in, "the superblock"));
    if (is_size(f->address_size) && is_size(f->length_size)) return MANTA_OK;
    return h5_lacks(f, f->data, "addresses of %d bytes and lengths of %d, expected 2, 4 or 8",
                    f->address_size, f->length_size);
}

/* Versions 0 and 1: the root is an entry of a group at its end. */
static manta_status read_old_superblock(h5_file *f, int version, h5_in in, uint64_t *end)
{
    h5_skip(&in, 4); /* versions of what it holds */
    TRY(take_sizes(f, &in));
    h5_skip(&in, 1 + 4 + 4); /* sizes of nodes, which nodes say themselves */
    if (version == 1) h5_skip(&in, 4);
    h5_skip(&in, 2 * (size_t)f->address_size); /* where it begins, free space */
    *end = h5_take_address(&in);
    h5_skip(&in, (size_t)f->address_size + (size_t)f->length_size); /* the driver; a name for the root */
    f->root = h5_take_address(&in);
    return h5_whole(&in, "the superblock");
}

static manta_status read_new_superblock(h5_file *f, h5_in in, uint64_t *end)
{
    TRY(take_sizes(f, &in));
    h5_skip(&in, 1 + 2 * (size_t)f->address_size); /* flags, where it begins, what is more to say */
    *end = h5_take_address(&in);
    f->root = h5_take_address(&in);
    h5_skip(&in, 4);
    TRY(h5_whole(&in, "the superblock"));
    return h5_check_sum(f, f->data, (size_t)(in.p - f->data), "the superblock");
}

static manta_status read_superblock(h5_file *f, size_t before)
{
    h5_in in = h5_bytes(f, f->data, f->size);
    uint64_t end = 0;
    int version;

    h5_skip(&in, 8);
    version = h5_take_int(&in, 1);
    if (version > 3) return h5_lacks(f, f->data, "a superblock of version %d, expected 0 to 3", version);
    TRY(version < 2 ? read_old_superblock(f, version, in, &end) : read_new_superblock(f, in, &end));
    if (end > f->size + before) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the file is cut short: it has %zu bytes, the superblock says %llu", f->path,
                          f->size + before, (unsigned long long)end);
    }
    return MANTA_OK;
}

/* Where the file begins behind what someone put in front of it: at 0, or at a power of two from 512 on. */
static bool find_signature(const uint8_t *data, size_t size, size_t *at)
{
    for (size_t n = 0; n < size; n = n ? 2 * n : 512) {
        *at = n;
        if (h5_is(data + n, size - n)) return true;
        if (n > size / 2) break;
    }
    return false;
}

manta_status h5_open(const char *path, const uint8_t *data, size_t size, h5_file **out)
{
    const h5_links *root = NULL;
    size_t before = 0;
    h5_file *f;
    manta_status st;

    if (!find_signature(data, size, &before)) {
        return manta_fail(MANTA_ECORRUPT,
                          "%s: this is not an HDF5 file: its signature is missing at offset 0", path);
    }
    f = mem_new(sizeof *f);
    *f = (h5_file){.path = mem_strdup(path), .data = data + before, .size = size - before};
    st = read_superblock(f, before);
    if (!st) st = h5_links_of(f, f->root, &root);
    if (!st && !root) st = h5_bad(f, f->data, "the root is no group");
    if (st) {
        h5_close(f);
        return st;
    }
    *out = f;
    return MANTA_OK;
}

void h5_join(h5_file *f, h5_file *more)
{
    while (f->next) f = f->next;
    f->next = more;
}

void h5_close(h5_file *f)
{
    while (f) {
        h5_file *next = f->next;
        for (size_t i = 0; i < f->groups.n; i++) vec_release(&f->groups.at[i].value);
        map_u64_release(&f->groups);
        mem_free(f->path);
        mem_free(f);
        f = next;
    }
}

/* ---- finding ---- */

manta_status h5_object_at(h5_file *f, const char *at, uint64_t *out)
{
    uint64_t here = f->root;
    const char *p = at;

    *out = H5_NOWHERE;
    for (int depth = 0; *p; depth++) {
        size_t n = strcspn(p, "/");
        const h5_links *links = NULL;
        const h5_link *l;
        if (depth >= MAX_DEPTH) return MANTA_OK;
        TRY(h5_links_of(f, here, &links));
        l = links ? h5_links_find(links, p, n) : NULL;
        if (!l) return MANTA_OK;
        if (l->to == H5_NOWHERE) {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "%s: /%s: '%.*s' is a soft or external link; only what lies in "
                              "the file itself is read",
                              f->path, at, (int)n, p);
        }
        here = l->to;
        p += n;
        if (*p == '/') p++;
    }
    *out = here;
    return MANTA_OK;
}

/* What lies at `at` of one file. */
static manta_status find_kind(h5_file *f, const char *at, h5_kind *out)
{
    const h5_links *links = NULL;
    h5_messages m = {0};
    uint64_t object;

    TRY(h5_object_at(f, at, &object));
    if (object == H5_NOWHERE) return MANTA_OK;
    TRY(h5_links_of(f, object, &links));
    if (links) {
        *out = H5_GROUP;
        return MANTA_OK;
    }
    TRY(h5_object_read(f, object, &m));
    if (h5_message_find(&m, H5_LAYOUT)) *out = H5_DATASET;
    vec_release(&m);
    return MANTA_OK;
}

manta_status h5_find(h5_file *f, const char *at, h5_kind *out)
{
    *out = H5_NOTHING;
    for (; f && *out == H5_NOTHING; f = f->next) TRY(find_kind(f, at, out));
    return MANTA_OK;
}

void h5_names_release(h5_names *names)
{
    for (size_t i = 0; i < names->n; i++) mem_free(names->at[i]);
    vec_release(names);
}

static int by_bytes(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

/* Sorts the names of several files, and leaves each of them once. */
static void merge_names(h5_names *names)
{
    size_t n = 0;

    if (names->n > 1) qsort(names->at, names->n, sizeof *names->at, by_bytes);
    for (size_t i = 0; i < names->n; i++) {
        if (n && !strcmp(names->at[n - 1], names->at[i])) {
            mem_free(names->at[i]);
        } else {
            names->at[n++] = names->at[i];
        }
    }
    names->n = n;
}

manta_status h5_list(h5_file *f, const char *at, h5_names *out)
{
    const char *path = f->path;
    bool found = false, joined = f->next != NULL;
    manta_status st = MANTA_OK;

    for (; f && !st; f = f->next) {
        const h5_links *links = NULL;
        uint64_t object;
        st = h5_object_at(f, at, &object);
        if (!st && object != H5_NOWHERE) st = h5_links_of(f, object, &links);
        found |= links != NULL;
        for (size_t i = 0; links && i < links->n; i++) {
            vec_push(out, mem_strndup(links->at[i].name, links->at[i].n));
        }
    }
    if (!st && !found) st = manta_fail(MANTA_ENOENT, "%s: there is no group /%s", path, at);
    if (st) {
        h5_names_release(out);
    } else if (joined) {
        merge_names(out);
    }
    return st;
}
