/* manta/tool_text.h - how the program speaks to a person: blocks, shell words, and
 * what a mistyped word was meant to be.
 *
 * For the program `manta` alone: no part of the stable interface (docs/abi.md),
 * not in manta.h, and it may change or go in any version.
 *
 * A block is what a person has to read at once: a head, and what, where and what
 * now under it. */
#ifndef MANTA_TOOL_TEXT_H
#define MANTA_TOOL_TEXT_H

#include <stddef.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/*     manta: worker 1 failed
 *       what   process 4711, killed by signal 9 (Killed)
 *       now    process 4720 is in its place
 *
 * Zeroed, it is empty. What does not fit is cut off; what could speak to a terminal
 * is a question mark. */
typedef struct manta_block {
    char text[4096];
} manta_block;

/* Adds to the line that was begun last; before the first one, to the head. */
MANTA_API void manta_block_add(manta_block *b, const char *fmt, ...) MANTA_PRINTF(2, 3);
/* Begins a line; a label has up to six letters. */
MANTA_API void manta_block_line(manta_block *b, const char *label);
/* Writes it to standard error, at once, so that nothing comes between its lines; with
 * colour on a terminal, unless NO_COLOR is set or TERM is dumb. */
MANTA_API void manta_block_show(const manta_block *b);

/* A word as a shell takes it for one, quoted where it has to be. Returns out; "" when
 * there is not even room for quotes. */
MANTA_API const char *manta_shell_word(const char *word, char *out, size_t size);

/* Makes a question mark, in place, of whatever in the text could do something to a
 * terminal beside showing itself: control characters, those of C1 among them, marks
 * that turn the direction of writing, and bytes that are no UTF-8. Single bytes that
 * `keep` has, such as "\n\t", stay. What others have said or named goes through here
 * before anyone sees it. Returns text. */
MANTA_API char *manta_printable(char *text, const char *keep);

/* What a mistyped word was probably meant to be: the nearest of the candidates
 * that were offered. Near is what a third of the letters makes of it, or what
 * begins with it. */
typedef struct manta_suggestion {
    const char *typed; /* borrowed */
    const char *best; /* borrowed from manta_suggestion_offer(); NULL: none is near */
    int distance;
} manta_suggestion;

MANTA_API manta_suggestion manta_suggestion_for(const char *typed);
MANTA_API void manta_suggestion_offer(manta_suggestion *s, const char *candidate);
/* The end of a sentence, "; did you mean BEST?", or "" when none is near. Returns buf. */
MANTA_API const char *manta_suggestion_text(const manta_suggestion *s, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
