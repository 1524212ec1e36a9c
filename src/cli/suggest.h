/* suggest.h - what a mistyped word was probably meant to be. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

/* Keeps the best of several candidates for `typed`. */
typedef struct suggestion {
    const char *typed;
    const char *best; /* NULL: none is near */
    int distance;
} suggestion;

suggestion suggest_for(const char *typed);
void suggest_offer(suggestion *s, const char *candidate);

/* Letters to insert, delete, replace, or swap with a neighbour to make b of a. */
int suggest_distance(const char *a, const char *b);

#endif
