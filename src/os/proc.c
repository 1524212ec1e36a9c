/* proc.c - see proc.h. */
#include "os/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
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
    void *text = NULL;
    size_t size;
    if (file_read("/proc/self/status", 64 * 1024, &text, &size)) return 0;
    uint64_t peak = proc_parse_peak_rss(text);
    mem_try_free(text);
    return peak;
}
