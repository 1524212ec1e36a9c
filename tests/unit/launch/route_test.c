/* route_test.c - lists of hosts, the commands that reach them, and what is advised when they do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/mem.h"
#include "launch/route.h"

static void ways(void **state)
{
    static const char *const bad[] = {"", "ssh", "ssh:", "mpi", "mpi:", "slurm:", "Slurm", "k8s", "ssh :x"};
    route_way way;
    const char *file;
    (void)state;

    assert_int_equal(route_parse(NULL, &way, &file), MANTA_OK);
    assert_int_equal(way, ROUTE_HERE);
    assert_null(file);
    assert_int_equal(route_parse("slurm", &way, &file), MANTA_OK);
    assert_int_equal(way, ROUTE_SLURM);
    assert_int_equal(route_parse("ssh:a:b", &way, &file), MANTA_OK);
    assert_int_equal(way, ROUTE_SSH);
    assert_string_equal(file, "a:b");
    assert_int_equal(route_parse("mpi:x", &way, &file), MANTA_OK);
    assert_int_equal(way, ROUTE_MPI);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(route_parse(bad[i], &way, &file), MANTA_EINVAL);
}

static void hosts_are_read(void **state)
{
    route_hosts h = {0};
    (void)state;

    assert_int_equal(
        route_read_hosts("f", "# a remark\n\n a slots=2 # here\r\nme@b:2222\n[::1]:22\tslots=1024", &h),
        MANTA_OK);
    assert_int_equal(h.n, 3);
    assert_string_equal(h.at[0].name, "a");
    assert_int_equal(h.at[0].processes, 2);
    assert_string_equal(h.at[1].name, "me@b:2222");
    assert_int_equal(h.at[1].processes, 0);
    assert_string_equal(h.at[2].name, "[::1]:22");
    assert_int_equal(h.at[2].processes, 1024);
    route_release_hosts(&h);
}

static void hosts_are_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no host"},
        {"# only a remark\n", "no host"},
        {"a\n-oProxyCommand=x\n", "line 2"},
        {"a;reboot", "line 1"},
        {"$(id)", "is no host"},
        {"a b", "slots=N"},
        {"a slots=0", "slots=N"},
        {"a slots=", "slots=N"},
        {"a slots=2x", "slots=N"},
        {"a slots=1025", "1024"},
        {"a\nb\na", "line 3: a is there twice"},
        {"\x1b[31m", "is no host"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        route_hosts h = {0};
        int64_t live = mem_live();
        assert_int_equal(route_read_hosts("f", rows[i].text, &h), MANTA_EINVAL);
        if (!strstr(manta_error_text(), rows[i].says)) fail_msg("%s: %s", rows[i].text, manta_error_text());
        assert_int_equal(mem_live(), live);
    }
}

static void assert_command(route_way way, const char *host, const char *with, const char *expected)
{
    route_words w = {0};
    buf all = {0};

    route_words_for(way, host, with, "/opt/my manta", &w);
    for (size_t i = 0; w.at[i]; i++) buf_printf(&all, "%s<%s>", i ? " " : "", w.at[i]);
    if (!strstr(buf_text(&all), expected)) fail_msg("%s", buf_text(&all));
    buf_release(&all);
    route_release_words(&w);
}

static void commands(void **state)
{
    route_words w = {0};
    (void)state;

    assert_command(ROUTE_HERE, "x", "ssh", "</opt/my manta> <agent>");
    assert_command(ROUTE_SSH, "a", "ssh", "<--> <a> <exec '/opt/my manta' agent>");
    assert_command(ROUTE_SSH, "a", "ssh -F  c", "<ssh> <-F> <c> <-T>");
    assert_command(ROUTE_SSH, "me@a:2222", "ssh", "<-p> <2222> <--> <me@a>");
    assert_command(ROUTE_SSH, "[fe80::1]:23", "ssh", "<-p> <23> <--> <fe80::1>");
    assert_command(ROUTE_SSH, "fe80::1", "ssh", "<--> <fe80::1>");
    assert_command(ROUTE_SSH, "me@[fe80::1]", "ssh", "<--> <me@fe80::1>");
    assert_command(ROUTE_SLURM, "n1", "17", "<--jobid=17> <--nodelist=n1> </opt/my manta> <agent>");
    assert_command(ROUTE_MPI, "n1", "ssh", "<mpirun> <-n> <1> <-host> <n1> </opt/my manta> <agent>");
    route_words_to_allocate(3, "--time=5 --exclusive", &w);
    assert_string_equal(w.at[0], "salloc");
    assert_string_equal(w.at[3], "--nodes=3");
    assert_string_equal(w.at[4], "--time=5");
    route_release_words(&w);
}

static void remedies(void **state)
{
    static const struct {
        route_way way;
        int status;
        const char *said, *remedy;
    } rows[] = {
        {ROUTE_SSH, W_EXITCODE(255, 0), "me@a: Permission denied (publickey).", "ssh-copy-id"},
        {ROUTE_SSH, W_EXITCODE(255, 0), "ssh: connect to host a port 22: Connection refused", "HOST:PORT"},
        {ROUTE_SSH, W_EXITCODE(255, 0), "connect to host a port 22: No route to host", "network"},
        {ROUTE_SSH, W_EXITCODE(255, 0), "Could not resolve hostname a", "knows that name"},
        {ROUTE_SSH, W_EXITCODE(255, 0), "Host key verification failed.", "once, by hand"},
        {ROUTE_SSH, W_EXITCODE(127, 0), "", "--manta"},
        {ROUTE_SSH, W_EXITCODE(1, 0), "", "--version"},
        {ROUTE_SLURM, W_EXITCODE(1, 0), "", "srun"},
        {ROUTE_MPI, W_EXITCODE(1, 0), "", "mpirun"},
        {ROUTE_HERE, W_EXITCODE(0, 9), "", "manta"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_non_null(strstr(route_remedy(rows[i].way, rows[i].status, rows[i].said), rows[i].remedy));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ways),     cmocka_unit_test(hosts_are_read), cmocka_unit_test(hosts_are_refused),
        cmocka_unit_test(commands), cmocka_unit_test(remedies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
