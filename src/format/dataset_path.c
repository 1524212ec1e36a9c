/* dataset_path.c - the names of the builtin datasets and the folders they lie in, for
 * programs that list them. */
#include <stdio.h>
#include <string.h>

#include <manta/data_file.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "format/builtin_datasets.h"

/* The i-th set of builtin_names(), "a, b, c"; NULL past the last. */
static const builtin_dataset *nth_dataset(int i)
{
    const char *text = builtin_names();
    char name[64];

    if (i < 0) return NULL;
    for (; i > 0; i--) {
        text = strstr(text, ", ");
        if (!text) return NULL;
        text += 2;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ","), text);
    return builtin_find(name);
}

const char *manta_data_name(int i)
{
    const builtin_dataset *set = nth_dataset(i);

    return set ? set->name : NULL;
}

/* A set may be spread over several folders, so all files are looked for; the
 * folder of the first one is told. */
manta_status manta_data_path(const char *name, char *path, size_t path_size)
{
    REFUSE_NULL(name);
    if (path_size > 0) REFUSE_NULL(path);

    const builtin_dataset *set = builtin_find(name);
    char *first = NULL, hint[SUGGEST_TEXT];
    manta_status st = MANTA_OK;
    int n;

    if (!set)
        return manta_fail(MANTA_ENOENT, "no dataset is called '%.80s'; there are %s%s", name, builtin_names(),
                          builtin_near(name, hint, sizeof hint));
    for (int i = 0; i < 4; i++) {
        char *found;
        if ((st = builtin_locate(set, i, NULL, &found))) goto out;
        if (i) {
            mem_free(found);
        } else {
            first = found;
        }
    }
    *strrchr(first, '/') = '\0'; /* it has one: builtin_locate() puts DIR/SET before the name */
    n = snprintf(path, path_size, "%s", first);
    if (n < 0 || (size_t)n >= path_size)
        st = manta_fail(MANTA_EINVAL, "%s: %zu bytes are too few for its path", name, path_size);
out:
    mem_free(first);
    return st;
}
