/* temp.h - a folder that is nobody else's: the one way in which tests make one. */
#ifndef TEST_TEMP_H
#define TEST_TEMP_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes base/manta-WHAT-PID-N, the first that is not there, and says so in `out`.
 * Whether it could be made. */
static inline bool temp_folder(char *out, size_t size, const char *base, const char *what)
{
    for (int i = 0; i < 10000; i++) {
        int n = snprintf(out, size, "%s/manta-%s-%ld-%d", base, what, (long)getpid(), i);
        if (n < 0 || (size_t)n >= size) return false;
        if (!mkdir(out, 0700)) return true;
        if (errno != EEXIST) return false;
    }
    return false;
}

/* In memory where there is such a place: for what brings things to disk all the time. */
static inline const char *temp_quick(void)
{
    return access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
}

#endif
