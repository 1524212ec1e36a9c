/* cpu_test.c - control groups as kernels and containers present them, built
 * under a folder of the test's own, with a scheduler that grants eight cores. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/cpu.h"
#include "os/fault.h"
#include "os/file.h"
#include "temp.h"

static char root[64];
static int granted; /* cores */
static size_t kernel_size; /* of the kernel's own set: a smaller one is refused */

static int fake_affinity(pid_t pid, size_t size, cpu_set_t *out)
{
    (void)pid;
    if (size < kernel_size) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(size, out);
    for (int i = 0; i < granted; i++) CPU_SET_S((size_t)i, size, out);
    return 0;
}

static os_sys table;

static int begin(void **state)
{
    (void)state;
    table = os_real;
    table.sched_getaffinity = fake_affinity;
    granted = 8;
    kernel_size = 0;
    os_use(&table);
    return temp_folder(root, sizeof root, "/tmp", "cpu") ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    char command[100];
    os_use(NULL);
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void put(const char *path, const char *text)
{
    char *full = mem_printf("%s%s", root, path), *parent = mem_strdup(full);

    *strrchr(parent, '/') = 0;
    assert_int_equal(file_mkdirs(parent), MANTA_OK);
    assert_int_equal(file_replace(full, text, strlen(text)), MANTA_OK);
    mem_free(full);
    mem_free(parent);
}

static void without_groups_the_scheduler_decides(void **state)
{
    (void)state;
    assert_int_equal(cpu_cores_at(root), 8);
    granted = 1;
    assert_int_equal(cpu_cores_at(root), 1);
    granted = 3000; /* a machine larger than the usual set */
    kernel_size = 512;
    assert_int_equal(cpu_cores_at(root), 3000);
}

static void version_2_quotas(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    static const struct {
        const char *own, *above, *top;
        int expected;
    } cases[] = {
        {"max 100000\n", "max 100000\n", "max 100000\n", 8},
        {"150000 100000\n", "max 100000\n", "max 100000\n", 2}, /* rounded up */
        {"200000 100000\n", "max 100000\n", "max 100000\n", 2},
        {"1000 100000\n", "max 100000\n", "max 100000\n", 1},
        {"400000 100000\n", "300000 100000\n", "max 100000\n", 3}, /* the least along the way */
        {"max 100000\n", "max 100000\n", "50000 10000\n", 5},
        {"6400000 100000\n", "max 100000\n", "max 100000\n", 8}, /* more than there is */
        {"", "max", "100000", 8}, /* nothing that can be read */
        {"100000 0\n", "-5 10\n", "x y\n", 8},
        {"9223372036854775807 1\n", "max 1\n", "max 1\n", 8},
        {"9223372036854775807 4611686018427387904\n", "max 1\n", "max 1\n", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("/sys/fs/cgroup/a/b/cpu.max", cases[i].own);
        put("/sys/fs/cgroup/a/cpu.max", cases[i].above);
        put("/sys/fs/cgroup/cpu.max", cases[i].top);
        assert_int_equal(cpu_cores_at(root), cases[i].expected);
    }
}

static void version_1_quotas(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:cpuset:/\n4:cpuacct,cpu:/box\n3:memory:/box\n0::/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_cores_at(root), 8);
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(cpu_cores_at(root), 3);
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpu_cores_at(root), 1);
}

/* "cpuset" and "cpuacct" begin like "cpu" and grant nothing. */
static void only_the_right_controller_counts(void **state)
{
    (void)state;
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    put("/proc/self/cgroup", "2:cpuset,cpuacct:/box\nnonsense\n1:\n");
    assert_int_equal(cpu_cores_at(root), 8);
    put("/proc/self/cgroup", "2:cpu:/box");
    assert_int_equal(cpu_cores_at(root), 1);
}

/* In a container the path may be the host's; the mount is the own group. */
static void a_path_that_leads_nowhere(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/kubepods/pod1/c2\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(cpu_cores_at(root), 2);
}

static void no_failure_makes_it_less_than_one(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
    int real = 0;
    int64_t before = mem_live();
    os_use(NULL);
    assert_true(cpu_cores() >= 1);
    for (int sticky = 0; sticky <= 1; sticky++) {
        for (int n = 1;; n++) {
            fault_begin((fault_plan){.at = n, .err = EIO, .sticky = sticky});
            real = cpu_cores_at(root);
            int64_t hits = fault_end();
            assert_true(real >= 1);
            assert_int_equal(mem_live(), before);
            if (!hits) {
                assert_true(n > 4);
                break;
            }
        }
        assert_int_equal(real, 1);
    }
    fault_begin((fault_plan){.interrupt = true, .short_io = true});
    real = cpu_cores_at(root);
    fault_end();
    assert_int_equal(real, 1);
}

static void levels_are_chosen_by_name_and_never_beyond(void **state)
{
    (void)state;
    cpu_level best = cpu_detect(), l = CPU_BASE;
    assert_int_equal(cpu_choose(NULL, &l), MANTA_OK);
    assert_int_equal(l, best);
    assert_int_equal(cpu_choose("auto", &l), MANTA_OK);
    assert_int_equal(cpu_choose("", &l), MANTA_OK);
    for (int i = CPU_BASE; i <= CPU_AVX512; i++) {
        manta_status st = cpu_choose(cpu_level_name((cpu_level)i), &l);
        assert_int_equal(st, i <= (int)best ? MANTA_OK : MANTA_EUNSUPPORTED);
        if (st == MANTA_OK) assert_int_equal(l, i);
    }
    l = CPU_AVX2;
    assert_int_equal(cpu_choose("sse", &l), MANTA_EINVAL);
    assert_int_equal(l, CPU_AVX2);
}

#if defined(__x86_64__)
static void detection_agrees_with_the_compiler(void **state)
{
    (void)state;
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    assert_int_equal(cpu_detect(), avx512 ? CPU_AVX512 : avx2 ? CPU_AVX2 : CPU_BASE);
}
#else
static void detection_agrees_with_the_compiler(void **state)
{
    (void)state;
    assert_int_equal(cpu_detect(), CPU_BASE);
}
#endif

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_groups_the_scheduler_decides),
        TEST(version_2_quotas),
        TEST(version_1_quotas),
        TEST(only_the_right_controller_counts),
        TEST(a_path_that_leads_nowhere),
        TEST(no_failure_makes_it_less_than_one),
        cmocka_unit_test(levels_are_chosen_by_name_and_never_beyond),
        cmocka_unit_test(detection_agrees_with_the_compiler),
    };

    return cmocka_run_group_tests_name("os/cpu", tests, NULL, NULL);
}
