/* suggest.c - what a mistyped word was probably meant to be. */
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/suggest.h"

enum { LONGEST = 63 };

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete, replace, or swap with a neighbour to make b of a. */
static int edit_distance(const char *a, const char *b)
{
    int d[LONGEST + 1][LONGEST + 1];
    int n = (int)strlen(a), m = (int)strlen(b);

    if (n > LONGEST || m > LONGEST) return n > m ? n : m; /* as if nothing were in common */
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++) {
        for (int j = 1; j <= m; j++) {
            int replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = least_of(replaced, least_of(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = least_of(d[i][j], d[i - 2][j - 2] + 1);
            }
        }
    }
    return d[n][m];
}

/* Near means a third of the letters, so that a short word does not become any
 * other short word. */
manta_suggestion manta_suggestion_for(const char *typed)
{
    REFUSE_NULL_OR(typed, (manta_suggestion){0});
    return (manta_suggestion){.typed = typed, .distance = (int)strlen(typed) / 3 + 1};
}

void manta_suggestion_offer(manta_suggestion *s, const char *candidate)
{
    REFUSE_NULL_AND_RETURN(s);
    REFUSE_NULL_AND_RETURN(candidate);

    size_t n = strlen(s->typed);
    int d = edit_distance(s->typed, candidate);

    /* A word cut short ("--learning") is near whatever it began. */
    if (n >= 3 && !strncmp(s->typed, candidate, n)) d = 1;
    if (d >= (int)n) return; /* nothing of it is left */
    if (d < s->distance || (d == s->distance && !s->best)) {
        s->best = candidate;
        s->distance = d;
    }
}

const char *manta_suggestion_text(const manta_suggestion *s, char *buf, size_t size)
{
    REFUSE_NULL_OR(s, NULL);
    if (size > 0) REFUSE_NULL_OR(buf, NULL);

    *buf = '\0';
    if (s->best) snprintf(buf, size, "; did you mean %s?", s->best);
    return buf;
}

void suggest_offer_part(manta_suggestion *s, const char *text, size_t n, char best[SUGGEST_NAME])
{
    char name[SUGGEST_NAME];

    snprintf(name, sizeof name, "%.*s", (int)(n < SUGGEST_NAME ? n : SUGGEST_NAME - 1), text);
    manta_suggestion_offer(s, name);
    if (s->best != name) return;
    memcpy(best, name, sizeof name);
    s->best = best;
}

const char *suggest_among(const char *typed, size_t n, const char *const *names, char *buf, size_t size)
{
    manta_suggestion near = manta_suggestion_for(typed);

    for (size_t i = 0; i < n; i++) manta_suggestion_offer(&near, names[i]);
    return manta_suggestion_text(&near, buf, size);
}
