/* A worker's scratch memory: what a successor finds, and what a worker does without one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/shm.h"
#include "os/sys.h"
#include "train/group/worker_scratch.h"

static _Atomic uint64_t made;

static int64_t size_of(int fd)
{
    struct stat s;

    assert_int_equal(fstat(fd, &s), 0);
    return s.st_size;
}

/* As exec.c uses it: what was given stays until more is given; every byte can be written. */
static char *block(worker_scratch *d, size_t size)
{
    char *at = worker_scratch_block(d, size);

    assert_non_null(at);
    assert_int_equal((uintptr_t)at % 64, 0);
    memset(at, 7, size);
    return at;
}

static void end(worker_scratch *d)
{
    if (d->size)
        shm_unmap(d->at, d->size);
    else
        mem_try_free(d->at);
}

static void a_successor_finds_the_pages(void **state)
{
    size_t page = shm_large_page();
    worker_scratch first = {.made = &made}, second = {.made = &made};
    int fd;

    (void)state;
    made = 0;
    assert_int_equal(shm_new_empty("test", &fd), MANTA_OK);
    first.fd = second.fd = fd;
    block(&first, page + 1);
    if (!first.size) { /* this system has no large pages */
        end(&first);
        close(fd);
        skip();
    }
    assert_int_equal(made, 2 * page);
    assert_int_equal(size_of(fd), 2 * page);
    strcpy(first.at, "left behind");
    assert_string_equal((char *)worker_scratch_block(&second, 2 * page), "left behind");
    assert_int_equal(size_of(fd), 2 * page);
    end(&first); /* it was dead all the time */
    block(&second, 3 * page);
    assert_true(second.size == 0 || made == 3 * page);
    end(&second);
    close(fd);
}

/* Death in the middle of making it: nobody has said that it is made, so it is made again. */
static void what_was_not_finished_is_made_again(void **state)
{
    size_t page = shm_large_page();
    worker_scratch d = {.made = &made};
    struct stat s;

    (void)state;
    made = 0;
    assert_int_equal(shm_new_empty("test", &d.fd), MANTA_OK);
    assert_int_equal(ftruncate(d.fd, (off_t)(2 * page)), 0); /* all holes */
    block(&d, 2 * page);
    assert_int_equal(fstat(d.fd, &s), 0);
    assert_true(!d.size || (size_t)s.st_blocks * 512 >= 2 * page);
    end(&d);
    close(d.fd);
}

static int no_advice(void *addr, size_t n, int advice)
{
    if (advice != 25) return os_real.madvise(addr, n, advice);
    errno = EINVAL;
    return -1;
}

static void without_a_scratch_memory_of_its_own_does(void **state)
{
    size_t page = shm_large_page();
    worker_scratch none = {.fd = -1, .made = &made}, d = {.made = &made};
    os_sys table = os_real;
    int64_t live = mem_live();

    (void)state;
    made = 0;
    block(&none, 3 * page);
    block(&none, 5 * page);
    assert_int_equal(none.size, 0);
    end(&none);
    assert_int_equal(shm_new_empty("test", &d.fd), MANTA_OK);
    block(&d, 100); /* not worth a large page */
    assert_int_equal(d.size, 0);
    table.madvise = no_advice;
    os_use(&table);
    block(&d, 3 * page);
    os_use(NULL);
    assert_int_equal(d.size, 0);
    assert_int_equal(made, 0);
    assert_int_equal(size_of(d.fd), 0);
    end(&d);
    close(d.fd);
    assert_int_equal(mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_successor_finds_the_pages),
        cmocka_unit_test(what_was_not_finished_is_made_again),
        cmocka_unit_test(without_a_scratch_memory_of_its_own_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
