/* replaced.h - whatever fails while a file is replaced: the old one or the new, whole, and nothing beside it. */
#ifndef TEST_REPLACED_H
#define TEST_REPLACED_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>

#include "base/mem.h"
#include "os/fault.h"
#include "scratch.h"

/* Writes the first n of a test's arrays to `path`. */
typedef manta_status replaced_write(const char *path, int n);

/* A small file's bytes; 0: there is none. */
static inline size_t replaced_load(const char *path, uint8_t *to, size_t size)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f) return 0;
    n = fread(to, 1, size, f);
    fclose(f);
    return n;
}

static inline int replaced_names(void)
{
    DIR *d = opendir(scratch_dir);
    int n = 0;

    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static inline void replaced_under(fault_plan plan, const char *path, replaced_write *write, int all)
{
    static uint8_t before[8192], after[8192], wanted[8192];
    size_t n_before, n_wanted;
    int files;

    assert_int_equal(write(path, all), MANTA_OK);
    n_wanted = replaced_load(path, wanted, sizeof wanted);
    assert_int_equal(write(path, 1), MANTA_OK);
    n_before = replaced_load(path, before, sizeof before);
    files = replaced_names();
    for (plan.at = 1; plan.at < 1000; plan.at++) {
        int64_t live = mem_live(), hits;
        manta_status st;
        size_t k;
        fault_begin(plan);
        st = write(path, all);
        hits = fault_end();
        assert_int_equal(mem_live(), live);
        k = replaced_load(path, after, sizeof after);
        if (st == MANTA_OK || st == MANTA_EUNKNOWN) {
            assert_int_equal(k, n_wanted);
            assert_memory_equal(after, wanted, k);
            assert_int_equal(write(path, 1), MANTA_OK);
        } else {
            assert_int_equal(k, n_before);
            assert_memory_equal(after, before, k);
        }
        assert_int_equal(replaced_names(), files);
        if (hits == 0) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
    }
    assert_true(plan.at > 5 && plan.at < 1000);
}

/* Each system call fails in turn: by itself, with all that follow, and among short and interrupted ones. */
static inline void replaced_whole_or_not(const char *path, replaced_write *write, int all)
{
    replaced_under((fault_plan){.err = EIO, .spare_unlink = true}, path, write, all);
    replaced_under((fault_plan){.err = ENOSPC, .sticky = true, .spare_unlink = true}, path, write, all);
    replaced_under((fault_plan){.err = EIO, .short_io = true, .interrupt = true, .spare_unlink = true}, path,
                   write, all);
}

#endif
