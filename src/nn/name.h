/* nn/name.h - comparing the names of losses, optimizers and their kin. */
#ifndef NN_NAME_H
#define NN_NAME_H

#include <ctype.h>
#include <stdbool.h>

/* Whether two names are the same but for case and underscores: Keras calls one
 * thing "mean_squared_error" and "MeanSquaredError", another "AdamW" and
 * "adam_w". */
static inline bool name_same(const char *a, const char *b)
{
    for (;; a++, b++) {
        while (*a == '_') a++;
        while (*b == '_') b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
        if (!*a) return true;
    }
}

#endif
