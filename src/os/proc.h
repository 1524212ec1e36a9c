/* proc.h - processes, seen from outside. */
#ifndef OS_PROC_H
#define OS_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/status.h"

/* Opens a descriptor that becomes readable when the process ends, and that
 * never means another process, as a reused pid would. Close-on-exec.
 * *out: owned, close it. MANTA_ENOENT there is no such process. */
manta_status proc_pidfd_open(pid_t pid, int *out) MANTA_MUST_USE;

/* Sends a signal to the process behind a pidfd, and never to another one; nothing happens
 * when it has ended. */
void proc_signal(int pidfd, int sig);

/* True when no such process runs: there is none, or it is dead and nobody has asked
 * how it ended (where process 1 adopts orphans and never asks, for good). False when
 * that cannot be known. */
bool proc_ended(pid_t pid);

/* How many threads this process has; 0 when the system does not say. */
int proc_threads(void);

/* Field n (3 or more, as proc(5) counts them) of the text of a /proc/PID/stat; 0 when it
 * has none. */
long proc_parse_stat(const char *text, int n);

/* The most memory this process has held at once, in bytes (VmHWM); 0 when the
 * system does not say. */
uint64_t proc_peak_rss(void);

/* The most memory that a process has held, from the text of its /proc/PID/status; 0 when
 * the text does not say. */
uint64_t proc_parse_peak_rss(const char *text);

/* Bytes of memory that only this process has: resident, and neither shared
 * memory nor files. 0 when it is gone. */
uint64_t proc_private_memory(pid_t pid);
uint64_t proc_parse_private_pages(const char *text); /* private pages, from the text of a /proc/PID/statm */

/* Bytes that the machine, or the control group this process lives in, could
 * still give. UINT64_MAX when the system does not say. */
uint64_t proc_available_memory(void);
uint64_t proc_parse_available(const char *text); /* available bytes, from the text of /proc/meminfo */

/* Lets this process have more files open, as far as it may without asking anybody:
 * the soft limit becomes the hard one, but at most `most` (programs that close
 * every descriptor up to the limit exist), and never less than it was. *before is
 * the limit as it was; all zero when the system does not say. */
void proc_raise_files(rlim_t most, struct rlimit *before);

/* Gives the limit back that proc_raise_files(most, before) found, unless somebody has
 * changed it since. */
void proc_restore_files(rlim_t most, const struct rlimit *before);

/* Fails with MANTA_ENOSPC and the sentence that `what` is not possible because this
 * process has as many files open as it may, with that number and what raises it. */
manta_status proc_fail_files(const char *what);

#endif
