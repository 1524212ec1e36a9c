/* comm/crash.h - where a test has a rank kill itself; see os/crash.h. */
#ifndef COMM_CRASH_H
#define COMM_CRASH_H

#include "os/crash.h"

#define COMM_CRASH_POINTS(X)                                                                                 \
    X(COMM_CRASH_JOINED, "comm/joined", "a rank has joined, and waits for the others")                       \
    X(COMM_CRASH_BEGUN, "comm/begun", "a call is begun, nothing of it is written")                           \
    X(COMM_CRASH_WORDS, "comm/words", "the words of a call are written")                                     \
    X(COMM_CRASH_PRODUCED, "comm/produced", "a step's data is written, not posted")                          \
    X(COMM_CRASH_POSTED, "comm/posted", "a step is posted")                                                  \
    X(COMM_CRASH_SEEN, "comm/seen", "a step of the other ranks is seen, not yet used")                       \
    X(COMM_CRASH_CONSUMED, "comm/consumed", "a step of the other ranks is seen and used")                    \
    X(COMM_CRASH_DONE, "comm/done", "a call is done")                                                        \
    X(COMM_CRASH_SENT, "comm/sent", "a cell of a message is written, not shown")                             \
    X(COMM_CRASH_TAKEN, "comm/taken", "a cell of a message is taken, not given back")
CRASH_DECLARE(comm, COMM_CRASH_POINTS)

#endif
