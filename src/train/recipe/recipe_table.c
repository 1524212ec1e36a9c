/* recipe_table.c - where the mapping of tables lies, and keeping it there. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta/data_file.h>
#include <manta/run.h>

#include "base/args.h"
#include "base/mem.h"
#include "format/table/table_json.h"
#include "train/recipe/recipe.h"
#include "train/storage/storage.h"

#define FILE_TAIL   ".table.json" /* behind the name of a file */
#define FOLDER_NAME "table.json" /* in the folder of a run */

static bool is_table(const char *spec)
{
    return strstr(spec, ".csv") || strstr(spec, ".tsv") || strstr(spec, ".parquet");
}

/* Loads a mapping of a run that lies in another storage than the file system. */
static manta_status load_stored(manta_recipe *r, const char *path)
{
    void *text = NULL;
    size_t n = 0;
    manta_status st = storage_read(path, TABLE_MOST_BYTES, &text, &n);

    if (st == MANTA_ENOENT) return MANTA_OK;
    if (!st) st = table_parse(path, text, n, &r->table);
    mem_try_free(text);
    return st;
}

/* Keeps a mapping with a run that lies in another storage than the file system. */
static manta_status keep_stored(const manta_recipe *r, const char *path)
{
    char *to = mem_printf("%s/" FOLDER_NAME, path), *text = NULL;
    manta_status st = r->table ? table_text(r->table, to, &text) : storage_remove(to);

    if (text) st = storage_put(to, text, strlen(text));
    if (!r->table && st == MANTA_ENOENT) st = MANTA_OK;
    free(text);
    mem_free(to);
    return st;
}

/* Loads the mapping at `path`, which it takes, when one lies there and none was found before. */
static manta_status try_path(manta_recipe *r, char *path)
{
    manta_status st = MANTA_OK;

    if (!r->table && !storage_is_local(path)) {
        st = load_stored(r, path);
    } else if (!r->table && !access(path, F_OK)) {
        st = manta_table_load(path, &r->table);
    }
    mem_free(path);
    return st;
}

/* Beside a file, in a run's folder, or in that of the run whose checkpoint it is. */
static manta_status look_beside(manta_recipe *r, const char *given)
{
    TRY(try_path(r, mem_printf("%s" FILE_TAIL, given)));
    TRY(try_path(r, mem_printf("%s/" FOLDER_NAME, given)));
    return try_path(r, mem_printf("%s/../../" FOLDER_NAME, given));
}

/* In the folder of the run that the settings name: one that goes on. */
static manta_status look_in_run(manta_recipe *r)
{
    const char *folder = recipe_text(r, "run-dir"), *name = recipe_text(r, "name");
    const char *storage = recipe_text(r, "storage");

    if (folder) return try_path(r, mem_printf("%s/" FOLDER_NAME, folder));
    if (!name) return MANTA_OK;
    return try_path(r, mem_printf("%s/%s/" FOLDER_NAME, storage ? storage : manta_run_storage(), name));
}

manta_status recipe_find_table(manta_recipe *r, const char *spec)
{
    const char *weights = recipe_text(r, "weights");

    if (r->table || !is_table(spec)) return MANTA_OK;
    TRY(look_in_run(r));
    if (weights) {
        TRY(look_beside(r, weights));
        if (!strchr(weights, '/'))
            TRY(try_path(r, mem_printf("%s/%s/" FOLDER_NAME, manta_run_storage(), weights)));
    }
    return r->saved && r->name ? look_beside(r, r->name) : MANTA_OK;
}

const manta_table *manta_recipe_table(const manta_recipe *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->table;
}

manta_status manta_recipe_keep_table(const manta_recipe *r, const char *path)
{
    REFUSE_NULL(r);
    REFUSE_NULL(path);
    if (!storage_is_local(path)) return keep_stored(r, path);

    struct stat info;
    bool folder = !stat(path, &info) && S_ISDIR(info.st_mode);
    char *to = folder ? mem_printf("%s/" FOLDER_NAME, path) : mem_printf("%s" FILE_TAIL, path);
    manta_status st = MANTA_OK;

    if (r->table) {
        st = manta_table_save(r->table, to);
    } else if (!access(to, F_OK) && unlink(to)) {
        st = manta_fail(MANTA_EIO,
                        "%s: the mapping of an earlier training cannot be removed, expected none beside %s",
                        to, path);
    }
    mem_free(to);
    return st;
}
