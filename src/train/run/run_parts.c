/* run_parts.c - files of a run's ranks on their way into checkpoints. */
#include "train/run/run_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "os/file.h"
#include "os/sys.h"
#include "train/run/run_folder.h"

#define PARTS  ".parts."
#define ASIDE  "aside-"
#define LITTER ".manta-tmp"

char *run_parts_folder(const char *run, int driver, int attempt)
{
    return mem_printf("%s/" PARTS "%d.%d", run, driver, attempt);
}

char *run_part(const char *parts, int64_t round, int rank)
{
    return mem_printf("%s/round-%lld.rank-%d", parts, (long long)round, rank);
}

char *run_part_notes(const char *parts, int64_t round, int rank)
{
    return mem_printf("%s/round-%lld.rank-%d.notes", parts, (long long)round, rank);
}

/* One folder, in one that is there. */
static manta_status make_folder(const char *path)
{
    if (!os->mkdir(path, 0777) || errno == EEXIST) return MANTA_OK;
    if (errno == ENOENT) return manta_fail(MANTA_ENOENT, "the run's folder is gone: no place for %s", path);
    return file_fail(errno, "creating", path);
}

manta_status run_part_make(const char *parts, const char *name)
{
    char *inner = name ? run_inner(parts, name) : NULL;
    manta_status st = make_folder(parts);

    if (!st && inner) st = make_folder(inner);
    mem_free(inner);
    return st;
}

/* Of one name the file that is there already stays. */
static manta_status move_file(const char *from, const char *to)
{
    file_info info;

    if (!file_stat(to, &info) || !file_rename(from, to)) return MANTA_OK;
    return file_copy(from, to); /* elsewhere */
}

manta_status run_parts_move(const char *from, const char *to)
{
    file_names names = {0};
    manta_status st = file_list(from, &names);

    for (size_t i = 0; i < names.n && !st; i++) {
        char *a = run_inner(from, names.at[i]), *b = run_inner(to, names.at[i]);
        file_info info;
        if (!(st = file_look(a, &info)) && info.is_folder) {
            if (!(st = file_mkdirs(b))) st = run_parts_move(a, b);
        } else if (!st) {
            st = move_file(a, b);
        }
        mem_free(a);
        mem_free(b);
    }
    file_names_release(&names);
    return st;
}

/* ---- folders that no rename brings here ---- */

/* The path of a folder that was moved aside, on one line. */
static manta_status write_path(const char *note, const char *path)
{
    ssize_t n = (ssize_t)strlen(path), put;
    int fd, err;

    do fd = os->open(note, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return file_fail(errno, "creating", note);
    do put = os->write(fd, path, (size_t)n);
    while (put < 0 && errno == EINTR);
    err = put < 0 ? errno : ENOSPC;
    os->close(fd);
    return put == n ? MANTA_OK : file_fail(err, "writing", note);
}

manta_status run_parts_aside(const char *parts, const char *folder, const char *tag, char **out)
{
    char *path = realpath(folder, NULL), *note = mem_printf("%s/" ASIDE "%s", parts, tag), *to = NULL;
    const char *name = path ? strrchr(path, '/') + 1 : NULL;
    manta_status st;

    if (!path) {
        st = file_fail(errno, "looking for", folder);
    } else {
        to = mem_printf("%.*s.%s.%ld.%s" LITTER, (int)(name - path), path, name, (long)getpid(), tag);
        st = write_path(note, to);
    }
    if (!st) st = file_rename(path, to);
    if (!st) {
        *out = to;
        to = NULL;
    }
    mem_free(to);
    mem_free(note);
    free(path);
    return st;
}

/* Whether a path is one that run_parts_aside() makes. */
static bool is_aside(const char *path)
{
    const char *name = strrchr(path, '/');
    size_t n = name ? strlen(name) : 0;

    return *path == '/' && n > strlen(LITTER) + 2 && name[1] == '.' &&
           !strcmp(name + n - strlen(LITTER), LITTER);
}

static void sweep_aside(const char *note)
{
    void *path = NULL;
    size_t n;

    if (!file_read(note, PATH_MAX, &path, &n) && is_aside(path)) {
        manta_status st = file_remove_tree(path);
        if (st && st != MANTA_ENOENT) log_warn("files of unfinished checkpoints stay", LOG_STR("path", path));
    }
    mem_try_free(path);
}

/* What was moved aside for an attempt, then all that it left in its own folder. */
static void sweep_attempt(const char *parts)
{
    file_names names = {0};
    manta_status st = file_list(parts, &names);

    for (size_t i = 0; !st && i < names.n; i++) {
        char *note = run_inner(parts, names.at[i]);
        if (!strncmp(names.at[i], ASIDE, strlen(ASIDE))) sweep_aside(note);
        mem_free(note);
    }
    file_names_release(&names);
    st = file_remove_tree(parts);
    if (st && st != MANTA_ENOENT) log_warn("files of unfinished checkpoints stay", LOG_STR("path", parts));
}

void run_parts_sweep(const char *folder)
{
    file_names names = {0};

    if (file_list(folder, &names)) return; /* gone: whoever needs it will say so */
    for (size_t i = 0; i < names.n; i++) {
        char *path;
        if (strncmp(names.at[i], PARTS, strlen(PARTS)) != 0) continue;
        path = run_inner(folder, names.at[i]);
        sweep_attempt(path);
        mem_free(path);
    }
    file_names_release(&names);
}
