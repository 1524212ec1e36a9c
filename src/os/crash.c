/* crash.c - see crash.h. */
#include "os/crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/file.h"
#include "os/sys.h"

typedef struct crash_counts {
    _Atomic int64_t hits; /* still to come; who makes it 0 dies */
    _Atomic int times; /* who may still die */
} crash_counts;

const crash_point *crash_planned;
int crash_rank = -1;

static crash_plan current;
static crash_counts own, *together; /* together: of all processes that inherit it, NULL: each its own */

void crash_plan_set(const crash_plan *plan)
{
    if (together) (void)os->munmap(together, sizeof *together);
    together = NULL;
    current = plan ? *plan : (crash_plan){0};
    if (current.times > 0) {
        together =
            os->mmap(NULL, sizeof *together, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (together == MAP_FAILED) abort(); /* of a test */
    }
    atomic_store(&own.hits, current.nth);
    if (together) {
        atomic_store(&together->hits, current.nth);
        atomic_store(&together->times, current.times);
    }
    crash_planned = current.point;
}

/* Whether the plan means this process. */
static bool is_meant(void)
{
    char name[32] = "";
    size_t n = strlen(current.process);

    if (current.rank >= 0 && crash_rank >= 0 && current.rank != crash_rank) return false;
    if (!n) return true;
    return !file_read_text("/proc/self/comm", name, sizeof name) && !strncmp(name, current.process, n) &&
           name[n] == '\n';
}

void crash_count(void)
{
    if (!is_meant()) return;
    if (atomic_fetch_sub(together ? &together->hits : &own.hits, 1) != 1) return;
    if (together && atomic_fetch_sub(&together->times, 1) > 1) atomic_store(&together->hits, 1);
    (void)os->kill(getpid(), SIGKILL);
    for (;;) pause(); /* a kill of oneself need not arrive before kill() returns */
}
