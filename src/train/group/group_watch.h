/* train/group/group_watch.h - tells a worker that hangs from one that is slow. */
#ifndef TRAIN_GROUP_GROUP_WATCH_H
#define TRAIN_GROUP_GROUP_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What was seen of a worker at the last look. */
typedef struct watch {
    uint64_t progress;
    int64_t cpu_ns;
    int64_t since_ns; /* no progress since; 0: not looked at yet */
} watch;

typedef enum watch_verdict { WATCH_FINE, WATCH_HANGS, WATCH_STOPPED } watch_verdict;

/* Looks at a worker. It hangs when its progress word has not changed for
 * deadline_ns and it has used next to no CPU time since, unless it waits for
 * others, one of its threads for a core or for a disk, or is being debugged; it
 * is stopped when a signal has stopped it for as long. */
watch_verdict watch_look(watch *w, pid_t pid, uint64_t progress, bool waits, int64_t now_ns,
                         int64_t deadline_ns);

#endif
