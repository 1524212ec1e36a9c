/* state.c - a state that somebody kept (a file, a checkpoint's folder, a run), and whether a file
 * can be written where one is to be kept. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta/recipe.h>
#include <manta/run.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/suggest.h"

/* ---- what was kept ---- */

static bool is_there(const char *folder, const char *name)
{
    char *path = mem_printf("%s/%s", folder, name);
    struct stat info;
    bool there = !stat(path, &info);

    mem_free(path);
    return there;
}

static manta_status open_last(const char *run, manta_checkpoint **out)
{
    char *folder = mem_printf("%s/checkpoints", run);
    manta_checkpoints *all = NULL;
    manta_status st = manta_checkpoints_open(folder, &(manta_checkpoints_options){.read_only = true}, &all);

    if (!st) st = manta_checkpoints_latest(all, out, NULL);
    if (st == MANTA_ENOENT) st = manta_fail(st, "run %s has no checkpoint", run);
    manta_checkpoints_close(all);
    mem_free(folder);
    return st;
}

static manta_status fail_unknown(const char *given)
{
    manta_suggestion near = manta_suggestion_for(given);
    manta_run_info *runs = NULL;
    char hint[SUGGEST_TEXT];
    manta_status st;
    int n = 0;

    if (manta_runs_list(manta_run_storage(), &runs, &n)) n = 0; /* then there is nothing to suggest */
    for (int i = 0; i < n; i++) manta_suggestion_offer(&near, runs[i].name);
    st = manta_fail(MANTA_ENOENT, "no file, no checkpoint and no run is called '%.200s'%s", given,
                    manta_suggestion_text(&near, hint, sizeof hint));
    manta_runs_free(runs);
    return st;
}

/* The checkpoint that `given` means; *out stays NULL when it means none. */
static manta_status open_checkpoint(const char *given, manta_checkpoint **out)
{
    struct stat info;
    char *run;
    manta_status st = MANTA_OK;

    *out = NULL;
    if (is_there(given, "manifest.json")) return manta_checkpoint_open(given, out);
    if (is_there(given, "checkpoints")) return open_last(given, out);
    if (!stat(given, &info) || strchr(given, '/')) return MANTA_OK;
    run = mem_printf("%s/%s", manta_run_storage(), given);
    if (is_there(run, "checkpoints")) {
        st = open_last(run, out);
    } else if (!manta_file_guess(given)) {
        st = fail_unknown(given);
    }
    mem_free(run);
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

/* A text that the caller gives back with free(). */
static char *plain_text(const char *folder, const char *name)
{
    char *text = NULL;

    if (asprintf(&text, "%s%s%s", folder, name ? "/" : "", name ? name : "") < 0)
        abort(); /* small control memory */
    return text;
}

manta_status manta_state_find(const char *given, char **path, manta_checkpoint **from)
{
    REFUSE_NULL(given);
    REFUSE_NULL(path);

    manta_checkpoint *c = NULL;
    const char *name = NULL;
    manta_status st = open_checkpoint(given, &c);

    if (!st && c) st = choose_file(c, &name);
    if (!st) *path = plain_text(c ? manta_checkpoint_path(c) : given, name);
    if (!st && from) {
        *from = c;
    } else {
        manta_checkpoint_close(c);
    }
    return st;
}

/* ---- what is to be kept ---- */

static bool ends_in(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);

    return n > m && !strcmp(text + n - m, ending);
}

/* The endings of files that a state can be written to, apart by blanks. Owned by the caller. */
static char *state_endings(void)
{
    char *text = mem_strdup(""), *longer;
    manta_file_format f;

    for (int i = 0; manta_file_format_at(i, &f); i++) {
        if (!f.writes || !strcmp(f.ending, ".json")) continue;
        longer = mem_printf("%s%s%s%s%s", text, *text ? " " : "", f.ending, f.also ? " " : "",
                            f.also ? f.also : "");
        mem_free(text);
        text = longer;
    }
    return text;
}

static bool has_ending(const char *path, const char *endings)
{
    char *copy = mem_strdup(endings), *rest = copy;
    bool known = false;

    for (char *part; (part = strsep(&rest, " "));) known = known || ends_in(path, part);
    mem_free(copy);
    return known;
}

static manta_status check_place(const char *path)
{
    char *folder = mem_strdup(path), *slash = strrchr(folder, '/');
    manta_status st = MANTA_OK;
    struct stat info;

    if (slash) slash[slash == folder] = '\0';
    if (!stat(path, &info) && S_ISDIR(info.st_mode)) {
        st = manta_fail(MANTA_EINVAL, "%s: it is a folder, expected the name of a file", path);
    } else if (access(slash ? folder : ".", W_OK)) {
        st = manta_fail(errno == ENOENT ? MANTA_ENOENT : MANTA_EPERM, "%s: cannot be written into %s: %s",
                        path, slash ? folder : "this folder", strerror(errno));
    }
    mem_free(folder);
    return st;
}

manta_status manta_output_check(const char *path, const char *endings)
{
    REFUSE_NULL(path);

    char *own = endings ? NULL : state_endings();
    manta_status st;

    if (!endings) endings = own;
    st = has_ending(path, endings)
             ? check_place(path)
             : manta_fail(MANTA_EINVAL, "%s: the name must end in one of: %s", path, endings);
    mem_free(own);
    return st;
}
