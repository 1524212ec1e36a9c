/* comm/crash.h - points at which a test has this process kill itself; always
 * compiled in, one load of a word that nobody writes. */
#ifndef COMM_CRASH_H
#define COMM_CRASH_H

typedef enum crash_point {
    CRASH_NOWHERE,
    CRASH_JOINED, /* has its seat, and waits for the others */
    CRASH_BEGUN, /* a call is begun, nothing of it is written */
    CRASH_WORDS, /* the words of the call are written */
    CRASH_PRODUCED, /* a step's data is written, not posted */
    CRASH_POSTED, /* a step is posted */
    CRASH_SEEN, /* a step of the other ranks is seen, not yet used */
    CRASH_CONSUMED, /* a step of the other ranks is seen and used */
    CRASH_DONE, /* a call is done */
    CRASH_SENT, /* a cell of a message is written, not shown */
    CRASH_TAKEN, /* a cell of a message is taken, not given back */
    CRASH_POINTS
} crash_point;

extern crash_point comm_crash_at; /* set by a test before it joins */
extern int comm_crash_count; /* the how-manieth time, from 1 */

void comm_crash(void); /* does not return when it is the time */

static inline void crash_here(crash_point p)
{
    if (comm_crash_at == p) comm_crash();
}

#endif
