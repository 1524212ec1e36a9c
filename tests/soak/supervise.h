/* supervise.h - runs a program in a process of its own, with a deadline, and looks for what
 * it leaves behind; and makes a program that fails smaller. */
#ifndef SOAK_SUPERVISE_H
#define SOAK_SUPERVISE_H

#include "program.h"

typedef enum soak_outcome {
    SOAK_GOOD,
    SOAK_REFUSED, /* its node could not be started with so few files, and said so */
    SOAK_BAD
} soak_outcome;

typedef struct soak_report {
    soak_outcome outcome;
    bool hung; /* it was ended at its deadline */
    double seconds;
    char what[8192]; /* what is wrong, and of one that hung what waits in its node */
} soak_report;

/* Once for the process: what its programs leave behind becomes its own. */
void soak_supervise_begin(void);

void soak_supervise(const soak_program *p, int deadline_s, soak_report *out);

/* shrink.c: the smallest program that it finds within so many seconds which still fails in
 * one of `tries` runs. `last` becomes what is wrong with it. Returns how many programs ran. */
int soak_shrink(soak_program *p, int seconds, int tries, int deadline_s, soak_report *last);

double soak_now(void);

#endif
