/* proc.h - processes, seen from outside. */
#ifndef OS_PROC_H
#define OS_PROC_H

#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* Opens a descriptor that becomes readable when the process ends, and that
 * never means another process, as a reused pid would. Close-on-exec.
 * *out: owned, close it. MANTA_ENOENT there is no such process. */
manta_status proc_pidfd_open(pid_t pid, int *out) MANTA_MUST_USE;

/* The most memory this process has held at once, in bytes (VmHWM); 0 when the
 * system does not say. */
uint64_t proc_peak_rss(void);

/* The same from the text of another /proc/PID/status. */
uint64_t proc_parse_peak_rss(const char *text);

#endif
