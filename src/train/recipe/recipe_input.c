/* recipe_input.c - the inputs of a prediction from a text: one dataset, or one for each input by name. */
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "train/recipe/recipe.h"

/* The text of one input: NAME=SPEC, or SPEC for a model that has one only. */
typedef struct given {
    const char *name; /* NULL: none was given */
    size_t name_n;
    const char *text;
    size_t n;
} given;

/* The length of the name that an "=" ends at `text`; 0: none stands there. A name
 * of a file or a column of one has a slash, a point or a colon before any "=". */
static size_t name_before_equals(const char *text)
{
    size_t n = strcspn(text, "=/:.,");

    return text[n] == '=' ? n : 0;
}

/* Up to a comma behind which the next NAME= stands: a dataset's own text may have
 * commas too. What has no name is one dataset, with all that follows. */
static given next_given(const char **rest)
{
    const char *p = *rest;
    size_t name = name_before_equals(p);
    given g = {.name = name ? p : NULL, .name_n = name, .text = name ? p + name + 1 : p};

    for (p = g.text; *p && !(name && *p == ',' && name_before_equals(p + 1)); p++) {}
    g.n = (size_t)(p - g.text);
    *rest = *p ? p + 1 : p;
    return g;
}

static const char *input_name(const manta_model *m, int i)
{
    const char *name = NULL;

    manta_model_input(m, i, &name);
    return name ? name : "x";
}

/* Which input is meant, into *out. */
static manta_status find_input(const manta_recipe *r, const given *g, int *out)
{
    char names[256] = "";
    int n = manta_model_inputs(r->m);

    *out = 0;
    if (!g->name && n == 1) return MANTA_OK;
    for (int i = 0; i < n; i++) {
        const char *name = input_name(r->m, i);
        *out = i;
        if (g->name && strlen(name) == g->name_n && !strncmp(name, g->name, g->name_n)) return MANTA_OK;
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%s'", i ? ", " : "", name);
    }
    if (!g->name)
        return manta_fail(MANTA_EINVAL, "%sinput: %s has %d inputs, expected NAME=X,... for %s", r->prefix,
                          manta_model_name(r->m), n, names);
    return manta_fail(MANTA_ENOENT, "%sinput: %s has no input called '%.*s'; %s %s", r->prefix,
                      manta_model_name(r->m), (int)g->name_n, g->name,
                      n == 1 ? "it is called" : "they are called", names);
}

/* Column x of one dataset under the name of the input it is for; labels and the like stay out. */
static manta_status open_one(manta_recipe *r, const given *g, int input, manta_dataset **out)
{
    static const char *const x[] = {"x"};
    const char *name = input_name(r->m, input);
    char *spec = mem_strndup(g->text, g->n);
    manta_dataset *d = NULL;
    manta_status st = manta_recipe_dataset(r, spec, false, &d);

    mem_free(spec);
    if (st) return st;
    d = manta_dataset_select(d, 1, x);
    if (strcmp(name, "x") && (g->name || manta_model_inputs(r->m) > 1))
        d = manta_dataset_rename(d, "x", name);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}

/* Joins what is there with one more; both must have as many samples. Takes both. */
static manta_status join_datasets(const manta_recipe *r, manta_dataset *one, manta_dataset **d)
{
    int64_t a = *d ? manta_dataset_count(*d) : 0, b = manta_dataset_count(one);

    if (*d && a >= 0 && b >= 0 && a != b) {
        manta_dataset_unref(one);
        return manta_fail(MANTA_EINVAL, "%sinput: one input has %lld samples and another %lld", r->prefix,
                          (long long)a, (long long)b);
    }
    *d = *d ? manta_dataset_zip(*d, one) : one;
    return manta_dataset_status(*d);
}

/* Adds the dataset of the next input of *specs. has[i]: input i has one. */
static manta_status add_input(manta_recipe *r, const char **specs, bool *has, manta_dataset **d)
{
    given g = next_given(specs);
    manta_dataset *one;
    int i;

    TRY(find_input(r, &g, &i));
    if (has[i])
        return manta_fail(MANTA_EINVAL, "%sinput: '%.*s' is given twice", r->prefix, (int)g.name_n, g.name);
    has[i] = true;
    TRY(open_one(r, &g, i, &one));
    return join_datasets(r, one, d);
}

manta_status manta_recipe_inputs(manta_recipe *r, const char *specs, manta_dataset **out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(specs);
    REFUSE_NULL(out);

    manta_dataset *d = NULL;
    manta_status st = MANTA_OK;
    int n = r->m ? manta_model_inputs(r->m) : 0;
    bool *has;

    recipe_begin(r);
    if (!r->m)
        return manta_fail(MANTA_EINVAL, "the recipe has no model yet, expected one to be opened first");
    has = mem_new((size_t)n + 1);
    do {
        st = add_input(r, &specs, has, &d);
    } while (!st && *specs);
    for (int i = 0; !st && i < n; i++) {
        if (!has[i])
            st = manta_fail(MANTA_EINVAL, "%sinput: nothing is given for the input '%s' of %s", r->prefix,
                            input_name(r->m, i), manta_model_name(r->m));
    }
    mem_free(has);
    if (!st) *out = d;
    if (st) manta_dataset_unref(d);
    return st;
}
