/* shm_test.c - shared memory: its seals, its two views, its refusals; and the
 * sockets that carry it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "ok.h"
#include "os/fault.h"
#include "os/shm.h"
#include "os/socket.h"
#include "os/spawner.h"

static void size_is_sealed(void **state)
{
    int fd;
    size_t size;
    (void)state;

    assert_int_equal(shm_new("test", 3 * shm_page(), &fd), MANTA_OK);
    assert_int_equal(shm_size(fd, &size), MANTA_OK);
    assert_int_equal(size, 3 * shm_page());
    assert_int_equal(ftruncate(fd, (off_t)shm_page()), -1);
    assert_int_equal(ftruncate(fd, (off_t)(9 * shm_page())), -1);
    close(fd);
}

static void other_descriptors_are_refused(void **state)
{
    size_t size;
    (void)state;
    FILE *file = tmpfile();

    assert_non_null(file);
    assert_int_equal(shm_size(fileno(file), &size), MANTA_ECORRUPT);
    fclose(file);
    int loose = memfd_create("loose", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    assert_true(loose >= 0 && ftruncate(loose, 4096) == 0);
    assert_int_equal(shm_size(loose, &size), MANTA_ECORRUPT); /* it could still shrink under a reader */
    close(loose);
}

static void the_writer_is_the_only_one(void **state)
{
    int fd;
    void *mine, *other;
    (void)state;

    assert_int_equal(shm_new("test", shm_page(), &fd), MANTA_OK);
    assert_int_equal(shm_map(fd, shm_page(), true, &mine), MANTA_OK);
    assert_false(shm_is_sealed(fd));
    assert_int_equal(shm_seal_writes(fd), MANTA_OK);
    assert_true(shm_is_sealed(fd));
    assert_int_equal(shm_map(fd, shm_page(), true, &other), MANTA_EPERM);
    assert_int_equal(shm_map(fd, shm_page(), false, &other), MANTA_OK);
    strcpy(mine, "written after the seal");
    assert_string_equal((char *)other, "written after the seal");
    assert_int_equal(mprotect(other, shm_page(), PROT_READ | PROT_WRITE), -1);
    assert_int_equal(write(fd, "x", 1), -1);
    shm_unmap(mine, shm_page());
    shm_unmap(other, shm_page());
    close(fd);
}

static void touching_changes_nothing(void **state)
{
    size_t size = 64 * shm_page();
    void *one, *two;
    int fd;
    (void)state;

    assert_int_equal(shm_new("test", size, &fd), MANTA_OK);
    assert_int_equal(shm_map(fd, size, true, &one), MANTA_OK);
    for (size_t i = 0; i < size; i++) ((unsigned char *)one)[i] = (unsigned char)(i * 7);
    assert_int_equal(shm_map(fd, size, true, &two), MANTA_OK);
    mem_touch(two, size);
    assert_memory_equal(one, two, size);
    ((char *)two)[size - 1] = 'x';
    assert_int_equal(((char *)one)[size - 1], 'x');
    shm_unmap(one, size);
    shm_unmap(two, size);
    close(fd);
}

/* What the system grants of it may be nothing: the memory must be the same. */
static void check_large(size_t size)
{
    void *one, *two;
    struct stat s;
    int fd;

    assert_int_equal(shm_new_large("test", size, &fd), MANTA_OK);
    assert_int_equal(fstat(fd, &s), 0);
    assert_int_equal(s.st_size, size);
    assert_true((size_t)s.st_blocks * 512 >= size); /* reserved in full */
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(shm_map(fd, size, true, &one), MANTA_OK);
    assert_int_equal(shm_map(fd, size, false, &two), MANTA_OK);
    if (size >= 2 << 20) assert_int_equal((uintptr_t)one % (2 << 20), 0);
    for (size_t i = 0; i < size; i += 512) {
        assert_int_equal(((unsigned char *)one)[i], 0);
        ((unsigned char *)one)[i] = (unsigned char)(i / 512 * 7);
    }
    for (size_t i = 0; i < size; i += 512)
        assert_int_equal(((unsigned char *)two)[i], (unsigned char)(i / 512 * 7));
    shm_unmap(one, size);
    shm_unmap(two, size);
    close(fd);
}

static const size_t large_sizes[] = {4096, 2 << 20, (2 << 20) + 4096, (6 << 20) - 4096};

static void large_pages_hold_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large_sizes / sizeof *large_sizes; i++) check_large(large_sizes[i]);
}

static int no_advice(void *addr, size_t n, int advice)
{
    (void)addr, (void)n, (void)advice;
    errno = EINVAL;
    return -1;
}

static int no_truncate(int fd, off_t size)
{
    (void)fd, (void)size;
    errno = EIO;
    return -1;
}

static void without_large_pages_small_ones_do(void **state)
{
    os_sys table = os_real;
    (void)state;

    table.madvise = no_advice;
    os_use(&table);
    for (size_t i = 0; i < sizeof large_sizes / sizeof *large_sizes; i++) check_large(large_sizes[i]);
    table.ftruncate = no_truncate;
    for (size_t i = 0; i < sizeof large_sizes / sizeof *large_sizes; i++) check_large(large_sizes[i]);
    os_use(NULL);
}

/* Each call in turn fails: an error, or memory as good as ever; nothing is left open. */
static void large_pages_fail_cleanly(void **state)
{
    (void)state;
    for (int64_t n = 1;; n++) {
        void *at = NULL;
        int fd = -1;
        fault_begin((fault_plan){.at = n, .err = ENOMEM});
        manta_status st = shm_new_large("test", 4 << 20, &fd);
        if (!st) st = shm_map(fd, 4 << 20, true, &at);
        int64_t hits = fault_end();
        if (!st) {
            memset(at, 1, 4 << 20);
            shm_unmap(at, 4 << 20);
        }
        if (fd >= 0) close(fd);
        if (!hits) break;
    }
}

static int no_collapse(void *addr, size_t n, int advice)
{
    if (advice == 25) return no_advice(addr, n, advice);
    return os_real.madvise(addr, n, advice);
}

/* Grown, or as it was; what is in it stays either way. */
static void growing_keeps_what_is_there(void **state)
{
    size_t page = shm_large_page();
    os_sys table = os_real;
    struct stat s;
    void *at;
    int fd;
    (void)state;

    table.madvise = no_collapse;
    os_use(&table);
    assert_int_equal(shm_new_empty("test", &fd), MANTA_OK);
    assert_int_equal(shm_grow(fd, page), MANTA_ENOSPC);
    assert_int_equal(fstat(fd, &s), 0);
    assert_int_equal(s.st_size, 0);
    assert_int_equal(s.st_blocks, 0); /* nothing stays reserved */
    os_use(NULL);
    if (shm_grow(fd, page)) { /* this system has no large pages */
        close(fd);
        skip();
    }
    assert_int_equal(shm_map(fd, page, true, &at), MANTA_OK);
    strcpy(at, "here");
    os_use(&table);
    assert_int_equal(shm_grow(fd, 3 * page), MANTA_ENOSPC);
    os_use(NULL);
    assert_string_equal(at, "here");
    assert_int_equal(fstat(fd, &s), 0);
    assert_int_equal(s.st_size, page);
    if (!shm_grow(fd, 3 * page)) {
        assert_string_equal(at, "here");
        assert_int_equal(fstat(fd, &s), 0);
        assert_int_equal(s.st_size, 3 * page);
        assert_true((size_t)s.st_blocks * 512 >= 3 * page);
    }
    shm_unmap(at, page);
    close(fd);
}

static void a_ring_runs_over_its_end(void **state)
{
    int fd;
    void *at;
    size_t page = shm_page();
    (void)state;

    assert_int_equal(shm_new("test", 3 * page, &fd), MANTA_OK);
    assert_int_equal(shm_map_twice(fd, page, 2 * page, &at), MANTA_OK);
    memcpy((char *)at + 2 * page - 3, "abcdef", 6);
    assert_memory_equal(at, "def", 3);
    assert_memory_equal((char *)at + 2 * page, "def", 3);
    shm_unmap(at, 4 * page);
    close(fd);
}

static void a_forked_child_has_no_mapping(void **state)
{
    int fd, status;
    void *at;
    pid_t pid;
    (void)state;

    assert_int_equal(shm_new("test", shm_page(), &fd), MANTA_OK);
    assert_int_equal(shm_map(fd, shm_page(), true, &at), MANTA_OK);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        unsigned char seen;
        /* EFAULT or ENOMEM: no such page here */
        _exit(mincore(at, shm_page(), &seen) == -1 && errno == ENOMEM ? 0 : 1);
    }
    status = spawn_reap(pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    shm_unmap(at, shm_page());
    close(fd);
}

static void too_much_is_an_error_and_no_signal(void **state)
{
    int fd;
    (void)state;

    assert_int_equal(shm_new("test", (size_t)1 << 50, &fd), MANTA_ENOSPC);
    assert_error_says("reserving");
}

/* ---- sockets ---- */

static void messages_and_descriptors_arrive_whole(void **state)
{
    int p[2], fd, fds[SOCKET_MAX_FDS], n_fds;
    char in[64];
    size_t n, size;
    (void)state;

    assert_int_equal(socket_pair(p), MANTA_OK);
    assert_int_equal(socket_recv(p[1], in, sizeof in, &n, fds, &n_fds, false), MANTA_EBUSY);
    assert_int_equal(shm_new("test", shm_page(), &fd), MANTA_OK);
    assert_int_equal(socket_send(p[0], "one", 3, NULL, 0, true), MANTA_OK);
    assert_int_equal(socket_send(p[0], "two!", 4, (int[]){fd, fd}, 2, true), MANTA_OK);
    close(fd);
    close(p[0]); /* what was sent is still there */
    assert_int_equal(socket_recv(p[1], in, sizeof in, &n, fds, &n_fds, true), MANTA_OK);
    assert_int_equal(n, 3);
    assert_int_equal(n_fds, 0);
    assert_int_equal(socket_recv(p[1], in, sizeof in, &n, fds, &n_fds, true), MANTA_OK);
    assert_memory_equal(in, "two!", 4);
    assert_int_equal(n_fds, 2);
    assert_int_equal(shm_size(fds[1], &size), MANTA_OK);
    assert_true(fcntl(fds[0], F_GETFD) & FD_CLOEXEC);
    socket_close_all(fds, n_fds);
    assert_int_equal(socket_recv(p[1], in, sizeof in, &n, fds, &n_fds, true), MANTA_EDIED);
    assert_int_equal(socket_send(p[1], "x", 1, NULL, 0, true), MANTA_EDIED);
    close(p[1]);
}

static void a_message_that_does_not_fit_is_dropped_whole(void **state)
{
    int p[2], fds[SOCKET_MAX_FDS], n_fds;
    char in[8];
    size_t n;
    (void)state;

    assert_int_equal(socket_pair(p), MANTA_OK);
    assert_int_equal(socket_send(p[0], "nine bytes", 10, NULL, 0, true), MANTA_OK);
    assert_int_equal(socket_send(p[0], "next", 4, NULL, 0, true), MANTA_OK);
    assert_int_equal(socket_recv(p[1], in, sizeof in, &n, fds, &n_fds, true), MANTA_ECORRUPT);
    assert_int_equal(socket_recv(p[1], in, sizeof in, &n, fds, &n_fds, true), MANTA_OK);
    assert_int_equal(n, 4);
    socket_close_all(p, 2);
}

static void a_full_socket_says_so(void **state)
{
    int p[2], sent = 0;
    static char big[32 * 1024];
    manta_status st;
    (void)state;

    assert_int_equal(socket_pair(p), MANTA_OK);
    while (!(st = socket_send(p[0], big, sizeof big, NULL, 0, false)) && sent < 10000) sent++;
    assert_int_equal(st, MANTA_EBUSY);
    assert_true(sent > 0);
    socket_close_all(p, 2);
}

static void the_kernel_knows_the_peer(void **state)
{
    int p[2];
    pid_t pid;
    uid_t uid;
    (void)state;

    assert_int_equal(socket_pair(p), MANTA_OK);
    assert_int_equal(socket_peer(p[0], &pid, &uid), MANTA_OK);
    assert_int_equal(pid, getpid());
    assert_int_equal(uid, getuid());
    socket_close_all(p, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_is_sealed),
        cmocka_unit_test(other_descriptors_are_refused),
        cmocka_unit_test(the_writer_is_the_only_one),
        cmocka_unit_test(touching_changes_nothing),
        cmocka_unit_test(large_pages_hold_the_same),
        cmocka_unit_test(without_large_pages_small_ones_do),
        cmocka_unit_test(large_pages_fail_cleanly),
        cmocka_unit_test(growing_keeps_what_is_there),
        cmocka_unit_test(a_ring_runs_over_its_end),
        cmocka_unit_test(a_forked_child_has_no_mapping),
        cmocka_unit_test(too_much_is_an_error_and_no_signal),
        cmocka_unit_test(messages_and_descriptors_arrive_whole),
        cmocka_unit_test(a_message_that_does_not_fit_is_dropped_whole),
        cmocka_unit_test(a_full_socket_says_so),
        cmocka_unit_test(the_kernel_knows_the_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
