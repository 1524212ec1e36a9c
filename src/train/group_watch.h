/* train/group_watch.h - tells a worker that hangs from one that is slow. */
#ifndef TRAIN_GROUP_WATCH_H
#define TRAIN_GROUP_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What was seen of a worker at the last look. */
typedef struct watch {
    uint64_t progress;
    int64_t cpu_ns;
    int64_t since_ns; /* nothing has changed since; 0: not looked at yet */
} watch;

typedef enum watch_verdict { WATCH_FINE, WATCH_HANGS, WATCH_STOPPED } watch_verdict;

/* Looks at a worker. It hangs when neither its progress word nor its CPU time
 * has changed for deadline_ns, unless it waits for others, is being debugged
 * or waits for a disk; it is stopped when a signal has stopped it for as long. */
watch_verdict watch_look(watch *w, pid_t pid, uint64_t progress, bool waits, int64_t now_ns,
                         int64_t deadline_ns);

#endif
