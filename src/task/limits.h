/* limits.h - which process has to go for its memory. Pure. */
#ifndef TASK_LIMITS_H
#define TASK_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum limits_why {
    LIMITS_FINE = 0,
    LIMITS_OWN, /* it has more than it may */
    LIMITS_MACHINE /* the machine is short, and it has most */
} limits_why;

typedef struct limits_process {
    uint64_t memory; /* bytes that are its own */
    uint64_t limit; /* 0: none */
    bool busy; /* runs a call, or is an actor */
    bool going; /* is about to end anyway */
} limits_process;

/* The process to end now, and why; -1: none. One at a time when the machine is
 * short (less than `floor` of it is available): its end may be enough, so
 * nobody else goes while one is on its way. */
int limits_pick(const limits_process *p, int n, uint64_t available, uint64_t floor, limits_why *why);

#endif
