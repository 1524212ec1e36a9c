/* node_socket_test.c - the folder of nodes, and what is found in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/fault.h"
#include "os/socket.h"
#include "task/node_socket.h"
#include "temp.h"

static char own[64], folder[80];

static int setup(void **state)
{
    (void)state;
    if (!temp_folder(own, sizeof own, "/tmp", "socket")) return -1;
    snprintf(folder, sizeof folder, "%s/manta", own);
    return setenv("XDG_RUNTIME_DIR", own, 1);
}

static int teardown(void **state)
{
    char command[128];
    (void)state;

    chmod(folder, 0700);
    snprintf(command, sizeof command, "rm -rf %s", own);
    return system(command);
}

static bool exists(const char *name)
{
    char path[128];
    struct stat s;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &s) == 0;
}

static void only_a_folder_of_ours_alone(void **state)
{
    char path[NODE_SOCKET_PATH];
    (void)state;

    assert_int_equal(node_socket_folder(path, false), MANTA_ENOENT);
    assert_int_equal(node_socket_folder(path, true), MANTA_OK);
    assert_string_equal(path, folder);
    for (int mode = 0701; mode <= 0777; mode++) {
        chmod(folder, (mode_t)mode);
        assert_int_equal(node_socket_folder(path, true), (mode & 077) ? MANTA_EPERM : MANTA_OK);
    }
    assert_int_equal(rmdir(folder), 0);
    FILE *f = fopen(folder, "w");
    fclose(f);
    assert_int_equal(node_socket_folder(path, true), MANTA_EPERM);
    unlink(folder);
    assert_int_equal(symlink("/tmp", folder), 0);
    assert_int_equal(node_socket_folder(path, true), MANTA_EPERM);
    unlink(folder);
    setenv("XDG_RUNTIME_DIR",
           "/a/path/that/is/so/long/that/no/socket/could/ever/be/called/by/it/in/this/system/at/all", 1);
    assert_int_equal(node_socket_folder(path, true), MANTA_EINVAL);
    setenv("XDG_RUNTIME_DIR", "relative", 1); /* as if it were not set */
    assert_int_equal(node_socket_folder(path, false) == MANTA_EINVAL, 0);
    assert_true(!strncmp(path, "/tmp/manta-", 11));
}

static void the_longest_folder_has_whole_names(void **state)
{
    char base[96], path[NODE_SOCKET_PATH], found[NODE_SOCKET_PATH];
    int fd, in;
    (void)state;

    for (int n = 79; n <= 82; n++) { /* bytes of base/manta */
        int width = n - (int)strlen(own) - 7;
        snprintf(base, sizeof base, "%s/%0*d", own, width, 0);
        assert_int_equal(mkdir(base, 0700), 0);
        setenv("XDG_RUNTIME_DIR", base, 1);
        if (n > 80) {
            assert_int_equal(node_socket_open(NODE_SOCKET_MAIN, path, &fd), MANTA_EINVAL);
            continue;
        }
        assert_int_equal(node_socket_open(NODE_SOCKET_MAIN, path, &fd), MANTA_OK);
        assert_string_equal(path + n, "/" NODE_SOCKET_MAIN);
        assert_int_equal(node_socket_connect_main(found, &in), MANTA_OK);
        assert_string_equal(found, path);
        socket_close_all((int[]){in, fd}, 2);
    }
}

/* Where the name is taken nodes are found elsewhere, in a folder that nobody else can take. */
static void a_taken_name_is_gone_round(void **state)
{
    char taken[96], expected[NODE_SOCKET_PATH], path[NODE_SOCKET_PATH], found[NODE_SOCKET_PATH],
        host[65] = "";
    char *home = strdup(getenv("HOME") ? getenv("HOME") : "/");
    int fd, in;
    (void)state;

    unsetenv("XDG_RUNTIME_DIR");
    setenv("HOME", own, 1);
    setenv("XDG_CACHE_HOME", "relative", 1); /* as if it were not set */
    node_socket_base = own;
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(expected, sizeof expected, "%.40s/.cache/manta/run-%.40s", own, host);
    snprintf(taken, sizeof taken, "%s/manta-%u", own, (unsigned)geteuid());
    assert_int_equal(node_socket_folder(path, true), MANTA_OK);
    assert_string_equal(path, taken); /* nobody has */
    if (geteuid() == 0) {
        assert_int_equal(chown(taken, 12345, 12345), 0);
    } else {
        assert_int_equal(rmdir(taken), 0);
        assert_int_equal(symlink("/nowhere", taken), 0); /* one of another user is like it */
    }
    assert_int_equal(node_socket_folder(path, false), MANTA_ENOENT);
    assert_int_equal(node_socket_connect(NULL, found, &in), MANTA_ENOENT);
    assert_int_equal(node_socket_open(NODE_SOCKET_MAIN, path, &fd), MANTA_OK);
    assert_int_equal(strncmp(path, expected, strlen(expected)), 0);
    assert_int_equal(node_socket_connect_main(found, &in), MANTA_OK);
    assert_string_equal(found, path);
    socket_close_all((int[]){in, fd}, 2);
    assert_int_equal(chmod(expected, 0755), 0); /* it must be closed as well */
    assert_int_equal(node_socket_folder(path, true), MANTA_EPERM);
    setenv("XDG_CACHE_HOME",
           "/a/path/that/is/so/long/that/no/socket/could/ever/be/called/by/it/in/this/system", 1);
    assert_int_equal(node_socket_folder(path, true), MANTA_EINVAL);
    setenv("XDG_CACHE_HOME", own, 1);
    assert_int_equal(node_socket_folder(path, true), MANTA_OK);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    assert_int_equal(node_socket_folder(path, true), MANTA_EPERM);
    setenv("HOME", home, 1);
    free(home);
    node_socket_base = "/tmp";
}

static void what_is_dead_is_swept(void **state)
{
    char path[NODE_SOCKET_PATH], found[NODE_SOCKET_PATH];
    int fd, other, in;
    (void)state;

    assert_int_equal(node_socket_connect(NULL, found, &in), MANTA_ENOENT);
    assert_int_equal(node_socket_open(NULL, path, &fd), MANTA_OK);
    assert_int_equal(node_socket_connect(NULL, found, &in), MANTA_OK);
    assert_string_equal(found, path);
    close(in);
    assert_int_equal(node_socket_connect_main(found, &in), MANTA_ENOENT); /* programs join no other's */
    /* Another node of this process gets another name. */
    char second[NODE_SOCKET_PATH];
    assert_int_equal(node_socket_open(NULL, second, &other), MANTA_OK);
    assert_string_not_equal(path, second);
    assert_int_equal(node_socket_connect(NULL, found, &in), MANTA_EBUSY); /* which of the two? */
    close(other); /* killed: its socket stays, and is nobody's */
    assert_true(exists(second + strlen(folder) + 1));
    assert_int_equal(node_socket_connect(NULL, found, &in), MANTA_OK);
    close(in);
    assert_int_equal(node_socket_connect(second, found, &in), MANTA_ENOENT);
    assert_int_equal(node_socket_open(NODE_SOCKET_MAIN, found, &other), MANTA_OK); /* sweeps */
    assert_false(exists(second + strlen(folder) + 1));
    assert_true(exists(path + strlen(folder) + 1)); /* alive */
    assert_int_equal(node_socket_open(NODE_SOCKET_MAIN, found, &in), MANTA_EEXIST);
    assert_int_equal(node_socket_connect_main(found, &in), MANTA_OK);
    close(in);
    node_socket_sweep(found); /* alive: stays */
    assert_true(exists(NODE_SOCKET_MAIN));
    close(other);
    node_socket_sweep(found);
    assert_false(exists(NODE_SOCKET_MAIN));
    close(fd);
}

/* Every system call fails once: an error with a sentence, or it worked. */
static void every_call_fails_once(void **state)
{
    char path[NODE_SOCKET_PATH];
    (void)state;

    for (int n = 1;; n++) {
        int fd = -1, in = -1;
        fault_begin((fault_plan){.at = n, .err = EMFILE});
        manta_status st = node_socket_open(NODE_SOCKET_MAIN, path, &fd);
        if (!st) {
            st = node_socket_connect(NULL, path, &in);
            socket_close_all(&in, 1);
            socket_close_all(&fd, 1);
        }
        int64_t hits = fault_end();
        if (st) assert_true(manta_error_text()[0]);
        if (hits == 0) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_a_folder_of_ours_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(the_longest_folder_has_whole_names, setup, teardown),
        cmocka_unit_test_setup_teardown(a_taken_name_is_gone_round, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_dead_is_swept, setup, teardown),
        cmocka_unit_test_setup_teardown(every_call_fails_once, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
