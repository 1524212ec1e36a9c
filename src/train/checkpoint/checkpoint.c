/* checkpoint.c - one checkpoint: how it comes to be, and how it is read. */
#include "train/checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/mem.h"
#include "format/safetensors/safetensors.h"
#include "train/storage/storage.h"

enum { MANIFEST_MOST = 16 << 20, COPY_PIECE = 1 << 20 };

char *checkpoint_path(const char *folder, int64_t sequence)
{
    return mem_printf("%s/checkpoint-%06" PRId64, folder, sequence);
}

int64_t checkpoint_sequence(const char *name)
{
    static const char stem[] = "checkpoint-";
    char *end;
    long long n;

    if (strncmp(name, stem, sizeof stem - 1) != 0) return -1;
    name += sizeof stem - 1;
    if (*name < '0' || *name > '9') return -1;
    errno = 0;
    n = strtoll(name, &end, 10);
    return *end || errno || n == INT64_MAX ? -1 : n; /* there is one behind it */
}

bool checkpoint_is_litter(const char *name)
{
    size_t n = strlen(name);

    return n > 10 && *name == '.' && !strcmp(name + n - 10, ".manta-tmp");
}

/* ---- coming to be ---- */

static manta_status check_inner(const char *folder, const char *name)
{
    char *path = mem_printf("%s%s%s", folder, *name ? "/" : "", name);
    file_names names = {0};
    file_info info = {.is_folder = true};
    manta_status st = *name ? file_look(path, &info) : MANTA_OK;

    if (st) goto out;
    if (!info.is_folder && !info.is_file) {
        st = manta_fail(MANTA_EINVAL, "%s is neither file nor folder: it cannot be kept", path);
    } else if (*name && !manifest_can_name(name)) {
        st = manta_fail(MANTA_EINVAL,
                        "%s cannot be kept: names are UTF-8, and " MANIFEST_NAME " is the checkpoint's own",
                        path);
    }
    if (st || !info.is_folder || (st = file_list(path, &names))) goto out;
    for (size_t i = 0; i < names.n && !st; i++) {
        char *inner = mem_printf("%s%s%s", name, *name ? "/" : "", names.at[i]);
        st = check_inner(folder, inner);
        mem_free(inner);
    }
out:
    file_names_release(&names);
    mem_free(path);
    return st;
}

manta_status checkpoint_check_folder(const char *folder)
{
    return check_inner(folder, "");
}

manta_status checkpoint_begin(const char *folder, int64_t sequence, char **temp)
{
    char *path = mem_printf("%s/.checkpoint-%06" PRId64 ".%ld.manta-tmp", folder, sequence, (long)getpid());
    manta_status st = storage_remove_tree(path); /* of an earlier try that failed */

    if (st == MANTA_ENOENT) st = MANTA_OK;
    if (!st) st = storage_claim(path);
    if (st) {
        mem_free(path);
        return st;
    }
    *temp = path;
    return MANTA_OK;
}

manta_status checkpoint_commit(const char *folder, const char *temp, const manifest *m)
{
    char *inner = mem_printf("%s/" MANIFEST_NAME, temp), *path = checkpoint_path(folder, m->info.sequence);
    char *text = manifest_text(m);
    manta_status st = storage_put(inner, text, strlen(text)); /* syncs the temporary folder too */

    if (st == MANTA_EUNKNOWN) st = MANTA_EIO; /* nothing is in place yet */
    if (!st) st = storage_publish(temp, path);
    free(text);
    mem_free(inner);
    mem_free(path);
    return st;
}

manta_status checkpoint_remove(const char *path)
{
    return storage_withdraw(path);
}

/* ---- reading ---- */

manta_status checkpoint_manifest(const char *path, manifest *m)
{
    char *inner = mem_printf("%s/" MANIFEST_NAME, path);
    void *text = NULL;
    size_t n;
    manta_status st = storage_read(inner, MANIFEST_MOST, &text, &n);

    if (st == MANTA_ENOENT) {
        st = manta_fail(MANTA_ENOENT, "%s is no checkpoint: it has no manifest", path);
    } else if (!st) {
        st = manifest_parse(inner, text, n, m);
    }
    mem_try_free(text);
    mem_free(inner);
    return st;
}

static manta_status check_file(const char *path, const manifest_file *f)
{
    char *inner = mem_printf("%s/%s", path, f->name);
    file_sum now = {0};
    manta_status st = storage_sum(inner, &now);

    if (st == MANTA_ENOENT) {
        st = manta_fail(MANTA_ECORRUPT, "%s is damaged: %s is missing", path, f->name);
    } else if (!st && now.size != f->sum.size) {
        st = manta_fail(MANTA_ECORRUPT, "%s is damaged: it has %" PRIu64 " bytes, expected %" PRIu64, inner,
                        now.size, f->sum.size);
    } else if (!st && now.crc != f->sum.crc) {
        st = manta_fail(MANTA_ECORRUPT, "%s is damaged: its crc32c is %08x, expected %08x", inner, now.crc,
                        f->sum.crc);
    }
    mem_free(inner);
    return st;
}

manta_status manta_checkpoint_open(const char *path, manta_checkpoint **out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    manta_checkpoint *c = mem_new(sizeof *c);
    manta_status st;

    c->path = mem_strdup(path);
    for (size_t n = strlen(c->path); n > 1 && c->path[n - 1] == '/';) c->path[--n] = '\0';
    if ((st = checkpoint_manifest(c->path, &c->m))) goto out;
    for (size_t i = 0; i < c->m.files.n && !st; i++) st = check_file(c->path, &c->m.files.at[i]);
    if (st) goto out;
    *out = c;
    c = NULL;
out:
    manta_checkpoint_close(c);
    return st;
}

void manta_checkpoint_close(manta_checkpoint *c)
{
    if (!c) return;
    manifest_release(&c->m);
    mem_free(c->path);
    mem_free(c);
}

const char *manta_checkpoint_path(const manta_checkpoint *c)
{
    REFUSE_NULL_OR(c, NULL);
    return c->path;
}

const manta_checkpoint_info *manta_checkpoint_get(const manta_checkpoint *c)
{
    REFUSE_NULL_OR(c, NULL);
    return &c->m.info;
}

const char *manta_checkpoint_note(const manta_checkpoint *c, const char *name)
{
    REFUSE_NULL_OR(c, NULL);
    REFUSE_NULL_OR(name, NULL);

    for (size_t i = 0; i < c->m.notes.n; i++) {
        if (!strcmp(c->m.notes.at[i].name, name)) return c->m.notes.at[i].text;
    }
    return NULL;
}

const char *manta_checkpoint_file(const manta_checkpoint *c, int i)
{
    REFUSE_NULL_OR(c, NULL);
    return i >= 0 && (size_t)i < c->m.files.n ? c->m.files.at[i].name : NULL;
}

/* ---- copies ---- */

/* From the storage to a folder of the user's. */
static manta_status copy_file(const char *from, const char *to)
{
    char *piece = mem_new(COPY_PIECE);
    file_writer *w = NULL;
    size_t n = 0;
    manta_status st = file_writer_open(to, &w);

    for (uint64_t at = 0; !st; at += n) {
        if ((st = storage_read_at(from, at, piece, COPY_PIECE, &n)) || !n) break;
        st = file_writer_write(w, piece, n);
    }
    if (!st) st = file_writer_commit(w);
    file_writer_free(w);
    mem_free(piece);
    return st;
}

manta_status manta_checkpoint_copy(const manta_checkpoint *c, const char *folder)
{
    REFUSE_NULL(c);
    REFUSE_NULL(folder);

    manta_status st = file_mkdirs(folder);

    for (size_t i = 0; i < c->m.files.n && !st; i++) {
        char *from = mem_printf("%s/%s", c->path, c->m.files.at[i].name);
        char *to = mem_printf("%s/%s", folder, c->m.files.at[i].name);
        char *slash = strrchr(to, '/');
        *slash = '\0';
        st = file_mkdirs(to);
        *slash = '/';
        if (!st) st = copy_file(from, to);
        mem_free(from);
        mem_free(to);
    }
    return st;
}

manta_status manta_checkpoint_arrays(const manta_checkpoint *c, manta_saved **out)
{
    REFUSE_NULL(c);
    REFUSE_NULL(out);

    char *inner = mem_printf("%s/" CHECKPOINT_STATE, c->path);
    void *data = NULL;
    size_t n = 0;
    manta_status st = storage_read(inner, SIZE_MAX / 2, &data, &n);

    if (!st) st = safetensors_saved(inner, data, n, out);
    mem_free(inner);
    return st;
}
