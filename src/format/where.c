/* where.c - what datasets have a name, and where they lie, for programs. */
#include <stdio.h>
#include <string.h>

#include <manta/data_file.h>

#include "base/mem.h"
#include "format/named.h"

/* The i-th set of named_list(), "a, b, c"; NULL past the last. */
static const named_set *nth(int i)
{
    const char *text = named_list();
    char name[64];

    if (i < 0) return NULL;
    for (; i > 0; i--) {
        text = strstr(text, ", ");
        if (!text) return NULL;
        text += 2;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ","), text);
    return named_find(name);
}

const char *manta_data_name(int i)
{
    const named_set *set = nth(i);

    return set ? set->name : NULL;
}

/* A set may be spread over several folders, so all files are looked for; the
 * folder of the first one is told. */
manta_status manta_data_path(const char *name, char *path, size_t path_size)
{
    const named_set *set = named_find(name);
    char *first = NULL;
    manta_status st = MANTA_OK;
    int n;

    if (!set) return manta_fail(MANTA_ENOENT, "no dataset is called '%s'; there are %s", name, named_list());
    for (int i = 0; i < 4; i++) {
        char *found;
        if ((st = named_locate(set, i, NULL, &found))) goto out;
        if (i) {
            mem_free(found);
        } else {
            first = found;
        }
    }
    *strrchr(first, '/') = '\0'; /* it has one: named_locate() puts DIR/SET before the name */
    n = snprintf(path, path_size, "%s", first);
    if (n < 0 || (size_t)n >= path_size)
        st = manta_fail(MANTA_EINVAL, "%s: %zu bytes are too few for its path", name, path_size);
out:
    mem_free(first);
    return st;
}
