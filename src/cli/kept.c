/* kept.c - a state that somebody kept: a file, a checkpoint's folder, or a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <manta/run.h>

#include "cli/kept.h"

static char *join_path(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);

    if (!path) abort();
    snprintf(path, n, "%s/%s", folder, name);
    return path;
}

static bool is_there(const char *folder, const char *name)
{
    char *path = join_path(folder, name);
    struct stat info;
    bool there = !stat(path, &info);

    free(path);
    return there;
}

bool kept_is_checkpoint(const char *path)
{
    return is_there(path, "manifest.json");
}

static manta_status open_last(const char *run, manta_checkpoint **out)
{
    char *folder = join_path(run, "checkpoints");
    manta_checkpoints *all = NULL;
    manta_status st = manta_checkpoints_open(folder, &(manta_checkpoints_options){.read_only = true}, &all);

    if (!st) st = manta_checkpoints_latest(all, out, NULL);
    if (st == MANTA_ENOENT) st = manta_fail(st, "run %s has no checkpoint", run);
    manta_checkpoints_close(all);
    free(folder);
    return st;
}

/* The checkpoint that `given` means; *out stays NULL when it means none. */
static manta_status open_checkpoint(const char *given, manta_checkpoint **out)
{
    struct stat info;
    char *run;
    manta_status st = MANTA_OK;

    *out = NULL;
    if (kept_is_checkpoint(given)) return manta_checkpoint_open(given, out);
    if (is_there(given, "checkpoints")) return open_last(given, out);
    if (!stat(given, &info) || strchr(given, '/')) return MANTA_OK;
    run = join_path(manta_run_storage(), given);
    if (is_there(run, "checkpoints")) {
        st = open_last(run, out);
    } else if (!manta_file_guess(given)) {
        st = manta_fail(MANTA_ENOENT, "no file, no checkpoint and no run is called '%s'", given);
    }
    free(run);
    return st;
}

/* Which file of a checkpoint is its state. */
static manta_status choose_file(const manta_checkpoint *c, const char **out)
{
    const char *name;

    *out = manta_checkpoint_file(c, 0);
    for (int i = 0; (name = manta_checkpoint_file(c, i)); i++) {
        if (!strcmp(name, "state.safetensors")) {
            *out = name;
            return MANTA_OK;
        }
    }
    if (*out && !manta_checkpoint_file(c, 1)) return MANTA_OK;
    return manta_fail(MANTA_ENOENT, "%s has no state.safetensors: name one of its files",
                      manta_checkpoint_path(c));
}

manta_status kept_find(const char *given, char **path, manta_checkpoint **from)
{
    manta_checkpoint *c;
    const char *name = NULL;
    manta_status st = open_checkpoint(given, &c);

    if (!st && c) st = choose_file(c, &name);
    if (!st) *path = c ? join_path(manta_checkpoint_path(c), name) : strdup(given);
    if (!st && from) {
        *from = c;
    } else {
        manta_checkpoint_close(c);
    }
    return st;
}

manta_status kept_read(const char *given, const manta_read_options *how, manta_saved **out)
{
    char *path;
    manta_status st = kept_find(given, &path, NULL);

    if (st) return st;
    st = manta_file_read(path, how, out);
    free(path);
    return st;
}
