/* progress.h - progress as Keras draws it.
 *
 * On a terminal one line is drawn over and over:
 *
 *     Epoch 1/3
 *     312/938 ━━━━━━━━━━━━━━━━━━━━ 4s 6ms/step - accuracy: 0.8712 - loss: 0.4410
 *
 * where the time is what is left, and at the end what it took. Elsewhere there
 * is a line per epoch, and one every ten seconds of a long epoch. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

#include <manta/train.h>

enum { PROGRESS_DRAW_MS = 50 }; /* between two drawings of a line */

typedef struct progress {
    bool terminal, colour, unicode;
    bool open; /* a line is drawn and not yet ended */
    int64_t drawn_ms; /* when the line was drawn last; 0: not in this epoch */
    int64_t steps; /* steps of the epoch that is trained; negative: not known */
    int64_t step;
    double train_seconds; /* seconds of the epoch at its last training step */
    const char *note; /* behind a line of the epoch that is trained, where it fits; NULL: nothing */
} progress;

/* Looks at stdout, TERM, NO_COLOR and the locale. */
void progress_init(progress *p);

/* Shows the event of a fit, or of an evaluation. */
void progress_show(progress *p, const manta_event *e);

/* Ends a line that is still open, so that a message stands alone. */
void progress_break(progress *p);

/* Ends an open line after Ctrl-C, which the terminal has echoed as ^C. */
void progress_interrupted(progress *p);

/* Shows so many of so many bytes of a file. */
void progress_bytes(progress *p, const char *file, int64_t done, int64_t total);

/* Ends an evaluation's line with its results. */
void progress_evaluated(progress *p, int64_t steps, double seconds, const manta_metrics *m);

/* Writes text with bold around it when colours are on. */
void progress_bold(const progress *p, const char *text);

#endif
