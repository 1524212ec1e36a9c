/* spec.h - values of the form NAME:KEY=VALUE,KEY=VALUE,FLAG. */
#ifndef CLI_SPEC_H
#define CLI_SPEC_H

#include <stdbool.h>
#include <stdint.h>

enum { SPEC_PAIRS = 32 };

typedef struct spec {
    const char *option; /* for sentences: "--lr-schedule" */
    char *text; /* what the pointers below point into */
    const char *name;
    int n;
    const char *key[SPEC_PAIRS];
    const char *value[SPEC_PAIRS]; /* "yes" for a key that stands alone */
    bool used[SPEC_PAIRS];
} spec;

/* Takes `text` apart; ends the process when it cannot. */
void spec_init(spec *s, const char *option, const char *text);
void spec_release(spec *s);

/* The value of a key, NULL when it was not given; the key counts as used. */
const char *spec_value(spec *s, const char *key);
double spec_real(spec *s, const char *key, double fallback);
int64_t spec_count(spec *s, const char *key, int64_t fallback); /* whole, not negative */
bool spec_flag(spec *s, const char *key);

/* Ends the process when a key was given that nobody asked for. `keys` lists
 * those there are. */
void spec_done(const spec *s, const char *keys);

#endif
