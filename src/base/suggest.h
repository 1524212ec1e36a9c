/* suggest.h - the nearest of several names, as the end of a sentence. One by one they are
 * offered to a manta_suggestion (manta/tool_text.h). */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

#include <stddef.h>

#include <manta/tool_text.h>

enum {
    SUGGEST_TEXT = 128, /* room for what suggest_among() writes; a longer name is cut */
    SUGGEST_NAME = 64 /* room for a name that suggest_offer_part() keeps */
};

/* "; did you mean NAME?" with the one of n names that is nearest to `typed`, or "". Returns buf. */
const char *suggest_among(const char *typed, size_t n, const char *const *names, char *buf, size_t size);

/* Offers text[0..n), which need neither be terminated nor stay: the nearest so far is kept in `best`. */
void suggest_offer_part(manta_suggestion *s, const char *text, size_t n, char best[SUGGEST_NAME]);

#endif
