/* train/recipe/settings.h - the table of settings: names, kinds, and reading their values. */
#ifndef TRAIN_RECIPE_SETTINGS_H
#define TRAIN_RECIPE_SETTINGS_H

#include <manta/recipe.h>

/* The place of the setting in the table, by any of its spellings; -1: none is called so. */
int settings_index(const char *name);
int settings_count(void);

/* Whether two names are the same but for hyphens and underscores. */
bool settings_same_name(const char *a, const char *b);

/* The number that `text`, a value of `what`, is. MANTA_EINVAL: it is none. */
manta_status settings_real(const char *what, const char *text, double *out) MANTA_MUST_USE;
manta_status settings_int(const char *what, const char *text, int64_t *out) MANTA_MUST_USE;
/* A comma-separated list of numbers into out[0..cap), and how many into *n. MANTA_EINVAL. */
manta_status settings_reals(const char *what, const char *text, int cap, double *out, int *n) MANTA_MUST_USE;

#endif
