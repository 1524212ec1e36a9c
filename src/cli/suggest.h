/* suggest.h - what a mistyped word was probably meant to be: the library's, under short names. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include <manta/tool_text.h>

typedef manta_suggestion suggestion;

static inline suggestion suggest_for(const char *typed)
{
    return manta_suggestion_for(typed);
}

static inline void suggest_offer(suggestion *s, const char *candidate)
{
    manta_suggestion_offer(s, candidate);
}

#endif
