/* proc.c - see proc.h. */
#include "os/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "os/sys.h"

manta_status proc_pidfd_open(pid_t pid, int *out)
{
    int fd = os->pidfd_open(pid, 0);
    if (fd >= 0) {
        *out = fd;
        return MANTA_OK;
    }
    int err = errno;
    manta_status st = err == ESRCH ? MANTA_ENOENT : err == ENOSYS ? MANTA_EUNSUPPORTED : MANTA_EIO;
    return manta_fail(st, "watching process %ld: %s", (long)pid, strerror(err));
}

uint64_t proc_parse_peak_rss(const char *text)
{
    const char *key = "VmHWM:";
    const char *at = strstr(text, key);
    if (!at || (at != text && at[-1] != '\n')) return 0;
    return strtoull(at + strlen(key), NULL, 10) * 1024; /* the file says kB and means KiB */
}

uint64_t proc_peak_rss(void)
{
    char text[16 * 1024];
    return file_read_text("/proc/self/status", text, sizeof text) ? 0 : proc_parse_peak_rss(text);
}
