/* cpu.c - control groups and cpuid. */
#include "os/cpu.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/mem.h"
#include "os/file.h"
#include "os/sys.h"

/* Reads a small file; false when it cannot be read, which for all that is asked
 * here means that no limit is said. */
static bool read_text(const char *root, const char *mount, const char *group, const char *name, char *text,
                      size_t n)
{
    char *path = mem_printf("%s%s%s%s", root, mount, group, name);
    bool ok = file_read_text(path, text, n) == MANTA_OK;

    mem_free(path);
    return ok;
}

/* quota / period, rounded up; INT_MAX when that is no limit. */
static int cores_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0 || quota / period >= INT_MAX) return INT_MAX;
    return (int)(quota / period) + (quota % period != 0);
}

static long long read_number(const char *root, const char *mount, const char *group, const char *name)
{
    char text[64];

    return read_text(root, mount, group, name, text, sizeof text) ? strtoll(text, NULL, 10) : -1;
}

/* What one group grants. v2 writes "QUOTA PERIOD" or "max PERIOD" into one
 * file, v1 two numbers into two, -1 for no limit. */
static int group_limit(const char *root, const char *mount, const char *group, bool v2)
{
    if (!v2)
        return cores_of(read_number(root, mount, group, "/cpu.cfs_quota_us"),
                        read_number(root, mount, group, "/cpu.cfs_period_us"));
    char text[64], *rest;
    if (!read_text(root, mount, group, "/cpu.max", text, sizeof text)) return INT_MAX;
    long long quota = strtoll(text, &rest, 10); /* 0, no limit, for "max" */
    return cores_of(quota, strtoll(rest, NULL, 10));
}

/* The least that the group and those above it grant. In a container the path
 * may be the host's and lead nowhere under our mount; the walk up then still
 * ends at the mount, which is the container's own group. */
static int path_limit(const char *root, const char *mount, const char *path, bool v2)
{
    int least = INT_MAX;
    char *group = mem_strdup(path);

    for (;;) {
        int limit = group_limit(root, mount, group, v2);
        if (limit < least) least = limit;
        char *slash = strrchr(group, '/');
        if (!slash) break;
        *slash = 0;
    }
    mem_free(group);
    return least;
}

/* Whether the comma-separated list names the processor-time controller. */
static bool lists_cpu(const char *list)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ",");
        if (n == 3 && memcmp(p, "cpu", 3) == 0) return true;
        p += n + (p[n] == ',');
    }
    return false;
}

/* One line of /proc/self/cgroup: "ID:CONTROLLERS:PATH"; v2 has none listed. */
static int line_limit(const char *root, char *line)
{
    static const char *const v2_mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    static const char *const v1_mounts[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                                            "/sys/fs/cgroup/cpuacct,cpu"};
    char *list = strchr(line, ':'), *colon = list ? strchr(list + 1, ':') : NULL;
    int least = INT_MAX;

    if (!colon) return INT_MAX;
    *colon = 0;
    list++;
    const char *path = strcmp(colon + 1, "/") == 0 ? "" : colon + 1;
    bool v2 = !*list;
    if (!v2 && !lists_cpu(list)) return INT_MAX;
    size_t n = v2 ? sizeof v2_mounts / sizeof *v2_mounts : sizeof v1_mounts / sizeof *v1_mounts;
    for (size_t i = 0; i < n; i++) {
        int limit = path_limit(root, v2 ? v2_mounts[i] : v1_mounts[i], path, v2);
        if (limit < least) least = limit;
    }
    return least;
}

static int cgroup_limit(const char *root)
{
    int least = INT_MAX;
    char text[16 * 1024], *rest = text; /* twelve controllers, paths of at most 4 KiB, in truth far less */

    if (!read_text(root, "/proc/self/cgroup", "", "", text, sizeof text)) return INT_MAX;
    while (rest && *rest) {
        char *line = rest, *end = strchr(rest, '\n');
        rest = end ? end + 1 : NULL;
        if (end) *end = 0;
        int limit = line_limit(root, line);
        if (limit < least) least = limit;
    }
    return least;
}

/* The cores the scheduler lets us use. The set grows until the kernel's fits. */
static int affinity_count(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        int n = -1;
        if (!set) break;
        if (os->sched_getaffinity(0, size, set) == 0) n = CPU_COUNT_S(size, set);
        int err = errno;
        CPU_FREE(set);
        if (n > 0) return n;
        if (err != EINVAL) break;
    }
    return 1;
}

int cpu_cores_at(const char *root)
{
    int cores = affinity_count(), granted = cgroup_limit(root);

    return granted < cores ? granted : cores;
}

int cpu_cores(void)
{
    return cpu_cores_at("");
}

#if defined(__x86_64__)
/* Which register states the operating system saves on a switch of threads. */
static uint64_t saved_states(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

cpu_level cpu_detect(void)
{
    enum { YMM = 0x6, ZMM = 0xE6 }; /* states: SSE and AVX; and the mask and upper AVX-512 registers */
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d)) return CPU_BASE;
    unsigned needed = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    if ((c & needed) != needed) return CPU_BASE;
    uint64_t saved = saved_states();
    if ((saved & YMM) != YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return CPU_BASE;
    unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    return (saved & ZMM) == ZMM && (b & avx512) == avx512 ? CPU_AVX512 : CPU_AVX2;
}
#else
cpu_level cpu_detect(void)
{
    return CPU_BASE;
}
#endif

static const char *const level_names[] = {[CPU_BASE] = "base", [CPU_AVX2] = "avx2", [CPU_AVX512] = "avx512"};

const char *cpu_level_name(cpu_level level)
{
    return level_names[level];
}

manta_status cpu_choose(const char *name, cpu_level *out)
{
    cpu_level best = cpu_detect();

    if (!name || !*name || strcmp(name, "auto") == 0) {
        *out = best;
        return MANTA_OK;
    }
    for (int i = CPU_BASE; i <= CPU_AVX512; i++) {
        if (strcmp(name, level_names[i]) != 0) continue;
        if (i > (int)best)
            return manta_fail(MANTA_EUNSUPPORTED, "instruction set %s: this machine has only %s", name,
                              level_names[best]);
        *out = (cpu_level)i;
        return MANTA_OK;
    }
    return manta_fail(MANTA_EINVAL, "there is no instruction set \"%s\" (there are base, avx2, avx512, auto)",
                      name);
}
