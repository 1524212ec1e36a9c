/* trainer_functions.c - see trainer_functions.h.
 *
 * A table of (name, function), added to and never taken from. A name that stands in it
 * with two functions names neither: which of them a worker's program would register first
 * is nothing that this one can know. */
#include "train/trainer/trainer_functions.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/vec.h"
#include "os/image.h"

_Static_assert((int)FUNCTION_NAME >= (int)IMAGE_NAME, "a place is a name, too");

typedef struct entry {
    function_kind kind;
    char *name;
    any_function *fn;
} entry;

static VEC(entry) table; /* filled before main() and by one thread */

/* What is said to users. */
static const struct {
    const char *noun, *macro;
} words[] = {
    [FUNCTION_LOOP] = {"loop", "MANTA_LOOP"}, [FUNCTION_MAKER] = {"dataset maker", "MANTA_DATASET_MAKER"}};

/* ---- the table ---- */

static void add_function(function_kind kind, const char *name, any_function *fn)
{
    for (size_t i = 0; i < table.n; i++) {
        const entry *e = &table.at[i];
        if (e->kind == kind && e->fn == fn && !strcmp(e->name, name)) return;
    }
    vec_push(&table, (entry){kind, mem_strdup(name), fn});
}

void manta_register_loop(const char *name, manta_loop_fn *fn)
{
    REFUSE_NULL_AND_RETURN(name);
    REFUSE_NULL_AND_RETURN(fn);
    add_function(FUNCTION_LOOP, name, (any_function *)fn);
}

void manta_register_dataset_maker(const char *name, manta_dataset_maker *fn)
{
    REFUSE_NULL_AND_RETURN(name);
    REFUSE_NULL_AND_RETURN(fn);
    add_function(FUNCTION_MAKER, name, (any_function *)fn);
}

/* How many functions have that name, and the first of them. */
static int count_named(function_kind kind, const char *name, any_function **out)
{
    int n = 0;

    for (size_t i = 0; i < table.n; i++) {
        const entry *e = &table.at[i];
        if (e->kind == kind && !strcmp(e->name, name) && !n++) *out = e->fn;
    }
    return n;
}

/* A name of the function that is its alone, or else one that it shares; NULL: none. */
static const char *name_of(function_kind kind, any_function *fn)
{
    const char *shared = NULL;
    any_function *first;

    for (size_t i = 0; i < table.n; i++) {
        const entry *e = &table.at[i];
        if (e->kind != kind || e->fn != fn) continue;
        if (count_named(kind, e->name, &first) == 1) return e->name;
        shared = e->name;
    }
    return shared;
}

/* ---- in the driver ---- */

static manta_status check_name(function_kind kind, const char *whose, const char *name)
{
    const char *noun = words[kind].noun, *macro = words[kind].macro;
    any_function *fn;
    int n;

    if (!*name || *name == '@' || strlen(name) >= FUNCTION_NAME) {
        return manta_fail(MANTA_EINVAL,
                          "%s: the name '%.40s' has %zu bytes, expected 1 to %d and no '@' in front", whose,
                          name, strlen(name), FUNCTION_NAME - 1);
    }
    n = count_named(kind, name, &fn);
    if (n == 1) return MANTA_OK;
    if (n > 1) {
        return manta_fail(
            MANTA_EEXIST,
            "%s: %d functions are registered as the %s '%s', expected one: %s() takes the name of "
            "the function, so give them different ones",
            whose, n, noun, name, macro);
    }
    return manta_fail(MANTA_ENOENT, "%s: no %s is called '%s'; write %s(%s) behind the function", whose, noun,
                      name, macro, name);
}

manta_status functions_name(function_kind kind, const char *whose, const char *name, any_function *fn,
                            char out[FUNCTION_NAME])
{
    if (!name == !fn) {
        return manta_fail(MANTA_EINVAL, "%s is %s, expected either a function or the name of one", whose,
                          fn ? "given twice" : "missing");
    }
    if (!name && !(name = name_of(kind, fn))) {
        if (image_name((uintptr_t)fn, out)) return MANTA_OK;
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s is a function that workers cannot be told of, since its file has no build id: "
                          "write %s() with its name behind it",
                          whose, words[kind].macro);
    }
    TRY(check_name(kind, whose, name));
    snprintf(out, FUNCTION_NAME, "%s", name);
    return MANTA_OK;
}

/* ---- in a worker ---- */

manta_status functions_find(function_kind kind, const char *name, any_function **out)
{
    const char *noun = words[kind].noun, *macro = words[kind].macro;
    int n;

    if (*name == '@') {
        if ((*out = (any_function *)image_find(name))) return MANTA_OK;
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "this worker's program (%s, pid %d) is another one than its driver's, and the %s has no "
            "name: write %s() behind the function, in both programs",
            program_invocation_short_name, (int)getpid(), noun, macro);
    }
    n = count_named(kind, name, out);
    if (n == 1) return MANTA_OK;
    if (n > 1) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "this worker's program (%s, pid %d) has %d functions registered as the %s '%s', "
                          "expected one",
                          program_invocation_short_name, (int)getpid(), n, noun, name);
    }
    return manta_fail(
        MANTA_EUNSUPPORTED,
        "this worker's program (%s, pid %d) has no %s called '%s': write %s(%s) behind the function "
        "there, or register it before manta_init()",
        program_invocation_short_name, (int)getpid(), noun, name, macro, name);
}
