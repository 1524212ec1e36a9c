/* alloc_fail.h - an operation meets a failure of each of its allocations in turn.
 *
 *     static manta_status read_once(void *path)
 *     {
 *         csv_table t = {0};
 *         manta_status st = csv_read(path, &t);
 *         csv_release(&t);
 *         return st;
 *     }
 *     ...
 *     assert_true(alloc_fail_each(read_once, path) > 4);
 *
 * Only memory sized by a user, a file or a peer (mem_try() and its kin) can fail. */
#ifndef TESTS_UNIT_ALLOC_FAIL_H
#define TESTS_UNIT_ALLOC_FAIL_H

#include <stdbool.h>

#include "base/mem.h"
#include "ok.h"

/* Does the whole operation and gives back all that it took, failed or not. */
typedef manta_status alloc_fail_run(void *ctx);

/* Calls run(ctx) with its 1st, 2nd, ... allocation failing until it makes no such
 * allocation. Each call that met a failure must return MANTA_ENOMEM, the last one
 * MANTA_OK, and none may leave a block behind. Returns how many met a failure. */
static inline int64_t alloc_fail_each(alloc_fail_run *run, void *ctx)
{
    for (int64_t n = 1;; n++) {
        int64_t live = mem_live();
        mem_fail_at(n, 0);
        manta_status st = run(ctx);
        bool hit = mem_failures() > 0;
        mem_fail_at(0, 0);
        assert_int_equal(mem_live(), live);
        if (!hit) {
            assert_ok(st);
            return n - 1;
        }
        assert_int_equal(st, MANTA_ENOMEM);
    }
}

#endif
