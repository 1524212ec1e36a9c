/* train/recipe/choice.h - values of the form NAME:KEY=VALUE,KEY=VALUE,FLAG: one thing of
 * several, and settings of its own.
 *
 * Readers give the fallback when something is wrong; the first failure is kept, and
 * choice_done() returns it, so that a choice is read without looking after every value. */
#ifndef TRAIN_RECIPE_CHOICE_H
#define TRAIN_RECIPE_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { CHOICE_PAIRS = 32 };

typedef struct choice {
    const char *what; /* for sentences: "--lr-schedule". Borrowed */
    char *text; /* what the pointers below point into */
    const char *name;
    int n;
    const char *key[CHOICE_PAIRS];
    const char *value[CHOICE_PAIRS]; /* "yes" for a key that stands alone */
    bool used[CHOICE_PAIRS];
    manta_status status; /* of the first failure; its sentence is this thread's last */
} choice;

/* Takes `text` apart. What is wrong with it is kept, too. */
void choice_init(choice *c, const char *what, const char *text);
void choice_release(choice *c);

/* The value of a key, or of its other name (NULL: none); NULL when it was not given. The key
 * counts as used. */
const char *choice_value(choice *c, const char *key, const char *also);
double choice_real(choice *c, const char *key, const char *also, double fallback);
int64_t choice_int(choice *c, const char *key, const char *also, int64_t fallback);
int64_t choice_count(choice *c, const char *key, const char *also, int64_t fallback); /* not negative */
bool choice_flag(choice *c, const char *key, const char *also);

/* Keeps a failure that the caller found, unless there was one before. */
void choice_fail(choice *c, const char *fmt, ...) MANTA_PRINTF(2, 3);

/* The first failure; or that a key was given which nobody asked for. `keys` lists those
 * there are, apart by ", ". */
manta_status choice_done(choice *c, const char *keys) MANTA_MUST_USE;

#endif
