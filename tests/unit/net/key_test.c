/* key_test.c - the cluster key's file, and addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/key.h"
#include "net/tcp.h"
#include "ok.h"
#include "os/fault.h"
#include "temp.h"

static char folder[64];

static const char *path_in(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void made_on_first_use(void **state)
{
    cluster_key a, b;
    struct stat st;

    (void)state;
    setenv("XDG_CONFIG_HOME", folder, 1);
    unsetenv("MANTA_CLUSTER_KEY");
    assert_int_equal(key_find(NULL, &a), MANTA_OK);
    assert_int_equal(key_find(NULL, &b), MANTA_OK);
    assert_memory_equal(a.bytes, b.bytes, KEY_SIZE);
    assert_false(a.given);
    assert_int_equal(stat(path_in("manta/cluster.key"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    setenv("MANTA_CLUSTER_KEY", path_in("manta/cluster.key"), 1);
    assert_int_equal(key_find(NULL, &b), MANTA_OK);
    assert_true(b.given);
    unsetenv("MANTA_CLUSTER_KEY");
    unlink(path_in("manta/cluster.key"));
}

/* Processes that all come first have the same key in the end. */
static void made_by_many_at_once(void **state)
{
    enum { MANY = 8 };
    unsigned char seen[MANY][KEY_SIZE];
    int pipes[MANY][2];

    (void)state;
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(pipe(pipes[i]), 0);
        if (!fork()) {
            cluster_key k;
            _exit(key_find(NULL, &k) || write(pipes[i][1], k.bytes, KEY_SIZE) != KEY_SIZE);
        }
        close(pipes[i][1]);
    }
    for (int i = 0; i < MANY; i++) {
        int status;
        assert_int_equal(read(pipes[i][0], seen[i], KEY_SIZE), KEY_SIZE);
        close(pipes[i][0]);
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
        assert_memory_equal(seen[i], seen[0], KEY_SIZE);
    }
    unlink(path_in("manta/cluster.key"));
}

static void not_any_file(void **state)
{
    static const char good[] = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n";
    cluster_key k;

    (void)state;
    assert_int_equal(key_read(path_in("none"), &k), MANTA_ENOENT);
    write_file(path_in("good"), good, 0600);
    assert_int_equal(key_read(path_in("good"), &k), MANTA_OK);
    assert_int_equal(k.bytes[1], 0x11);
    assert_int_equal(k.bytes[31], 0xff);
    write_file(path_in("good"), good, 0640);
    assert_int_equal(key_read(path_in("good"), &k), MANTA_EPERM);
    assert_error_says("chmod 600");
    write_file(path_in("good"), "00112233", 0600);
    assert_int_equal(key_read(path_in("good"), &k), MANTA_ECORRUPT);
    write_file(path_in("good"), "x0112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n", 0600);
    assert_int_equal(key_read(path_in("good"), &k), MANTA_ECORRUPT);
    assert_int_equal(key_read(folder, &k), MANTA_EPERM);
    unlink(path_in("good"));
}

static void a_new_key_replaces_nothing(void **state)
{
    cluster_key a, b;
    struct stat st;

    (void)state;
    assert_ok(key_make_new(path_in("new")));
    assert_int_equal(stat(path_in("new"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_ok(key_read(path_in("new"), &a));
    assert_fails_with(key_make_new(path_in("new")), MANTA_EEXIST, "something has that name already");
    assert_ok(key_read(path_in("new"), &b));
    assert_memory_equal(a.bytes, b.bytes, KEY_SIZE);
    assert_ok(key_make_new(path_in("other")));
    assert_ok(key_read(path_in("other"), &b));
    assert_memory_not_equal(a.bytes, b.bytes, KEY_SIZE);
    assert_fails_with(key_make_new(path_in("none/new")), MANTA_ENOENT, "none/new");
    unlink(path_in("other"));
    unlink(path_in("new"));
}

/* Who may write to a folder may put something under the name that the key is written to first. */
static void a_new_key_is_written_to_no_file_of_others(void **state)
{
    char temporary[160], elsewhere[128];
    struct stat st;

    (void)state;
    snprintf(elsewhere, sizeof elsewhere, "%s", path_in("elsewhere"));
    write_file(elsewhere, "", 0666);
    snprintf(temporary, sizeof temporary, "%s.%ld", path_in("new"), (long)getpid());
    assert_int_equal(link(elsewhere, temporary), 0);
    assert_ok(key_make_new(path_in("new")));
    assert_int_equal(stat(elsewhere, &st), 0);
    assert_int_equal(st.st_size, 0);
    unlink(path_in("new"));
    assert_int_equal(symlink(elsewhere, path_in("new")), 0);
    assert_fails_with(key_make_new(path_in("new")), MANTA_EEXIST, "something has that name");
    assert_int_equal(stat(elsewhere, &st), 0);
    assert_int_equal(st.st_size, 0);
    unlink(path_in("new"));
    unlink(elsewhere);
}

/* A system call fails: there is a whole key afterwards, or nothing. */
static void a_new_key_is_whole_or_not_there(void **state)
{
    (void)state;
    for (int n = 1;; n++) {
        manta_status st;
        cluster_key k;
        fault_begin((fault_plan){.at = n, .err = ENOSPC, .spare_unlink = true});
        st = key_make_new(path_in("new"));
        if (!fault_end()) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
        assert_true(n < 100);
        assert_int_equal(key_read(path_in("new"), &k), st ? MANTA_ENOENT : MANTA_OK);
        unlink(path_in("new"));
    }
    unlink(path_in("new"));
}

/* A system call fails: there is a key afterwards, or none, and nothing else. */
static void failing_system(void **state)
{
    (void)state;
    for (int n = 1;; n++) {
        manta_status st;
        cluster_key k;
        fault_begin((fault_plan){.at = n, .err = ENOSPC, .spare_unlink = true});
        st = key_find(NULL, &k);
        if (!fault_end()) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
        assert_true(n < 100);
        if (st) assert_true(manta_error_text()[0]);
        unlink(path_in("manta/cluster.key"));
        assert_int_not_equal(rmdir(path_in("manta")) && errno == ENOTEMPTY, 1);
    }
    unlink(path_in("manta/cluster.key"));
}

static void addresses(void **state)
{
    static const char *const wrong[] = {"",     "a",     "a:",    ":1",     "a:x",     "a:65536",
                                        "a:-1", "::1:5", "[::1]", "[::1:5", "a:123456"};
    char host[TCP_TEXT];
    tcp_place p;
    int port;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tcp_split(wrong[i], host, &port), MANTA_EINVAL);
    assert_int_equal(tcp_split("node-7.example:65535", host, &port), MANTA_OK);
    assert_string_equal(host, "node-7.example");
    assert_int_equal(port, 65535);
    assert_int_equal(tcp_split("[fe80::1]:22", host, &port), MANTA_OK);
    assert_string_equal(host, "fe80::1");
    assert_int_equal(tcp_resolve("127.0.0.1:80", &p), MANTA_OK);
    assert_true(tcp_is_loopback(&p));
    assert_int_equal(tcp_resolve("[::1]:80", &p), MANTA_OK);
    assert_true(tcp_is_loopback(&p));
    assert_int_equal(tcp_resolve("10.0.0.1:80", &p), MANTA_OK);
    assert_false(tcp_is_loopback(&p));
}

static void ports(void **state)
{
    char text[64], name[64], from[TCP_TEXT];
    tcp_place p;
    int a = -1, b = -1, c = -1, port;

    (void)state;
    assert_int_equal(tcp_resolve("127.0.0.1:0", &p), MANTA_OK);
    assert_int_equal(tcp_listen(&p, &a), MANTA_OK);
    assert_int_equal(tcp_port(a, &port), MANTA_OK);
    snprintf(text, sizeof text, "127.0.0.1:%d", port);
    assert_int_equal(tcp_resolve(text, &p), MANTA_OK);
    assert_int_equal(tcp_listen(&p, &b), MANTA_EBUSY);
    snprintf(text, sizeof text, "%d", a);
    snprintf(name, sizeof name, "no-such-host.invalid:%d", port); /* which is not looked up */
    assert_int_equal(tcp_inherit(text, name, &p, &c), MANTA_OK);
    assert_int_equal(a, c);
    assert_true(tcp_is_loopback(&p)); /* as the socket says */
    assert_string_equal(p.text, name);
    assert_int_equal(tcp_inherit("0", name, &p, &c), MANTA_EINVAL);
    assert_int_equal(tcp_inherit("x", name, &p, &c), MANTA_EINVAL);
    assert_int_equal(tcp_inherit("", name, &p, &c), MANTA_EINVAL);
    assert_int_equal(tcp_inherit(text, "no-such-host.invalid", &p, &c), MANTA_EINVAL);
    assert_int_equal(tcp_inherit(text, "127.0.0.1:1", &p, &c), MANTA_EINVAL); /* of another port */
    assert_int_equal(tcp_accept(a, &b, from), MANTA_EBUSY);
    close(a);
}

/* The flags of the mapping at `at`, from smaps; "" when there is none. */
static void flags_of(const void *at, char *out, size_t size)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    bool inside = false;

    out[0] = '\0';
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned long lo, hi;
        if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2) inside = (uintptr_t)at >= lo && (uintptr_t)at < hi;
        if (inside && !strncmp(line, "VmFlags:", 8)) snprintf(out, size, "%s", line + 8);
    }
    fclose(f);
}

static void a_key_that_is_kept_is_not_dumped(void **state)
{
    cluster_key from = {.given = true}, *held;
    char flags[512];

    (void)state;
    memset(from.bytes, 7, sizeof from.bytes);
    assert_ok(key_hold(&from, &held));
    assert_memory_equal(held->bytes, from.bytes, KEY_SIZE);
    assert_true(held->given);
    flags_of(held, flags, sizeof flags);
    if (!strstr(flags, " dd")) fail_msg("the memory of a key may be dumped:%s", flags);
    key_drop(held);
    key_drop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_is_kept_is_not_dumped),
        cmocka_unit_test(made_on_first_use),
        cmocka_unit_test(made_by_many_at_once),
        cmocka_unit_test(not_any_file),
        cmocka_unit_test(failing_system),
        cmocka_unit_test(a_new_key_replaces_nothing),
        cmocka_unit_test(a_new_key_is_written_to_no_file_of_others),
        cmocka_unit_test(a_new_key_is_whole_or_not_there),
        cmocka_unit_test(addresses),
        cmocka_unit_test(ports),
    };
    int failed;

    if (!temp_folder(folder, sizeof folder, "/tmp", "key")) return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(path_in("manta"));
    rmdir(folder);
    return failed;
}
