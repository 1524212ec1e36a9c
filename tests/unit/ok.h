/* ok.h - asserts how a call ended, and shows the sentence that it left.
 *
 *     assert_ok(manta_dataset_open(path, NULL, &d));
 *     assert_fails_with(parse("1,x", &t), MANTA_ECORRUPT, "field 2");
 *     assert_error_says("line 1");
 *
 * The failing line that cmocka reports is the caller's: these are macros. */
#ifndef TESTS_UNIT_OK_H
#define TESTS_UNIT_OK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

/* The call succeeds. */
#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        manta_status ok_ = (call);                                                                           \
        if (ok_) fail_msg("%s: %s", manta_status_name(ok_), manta_error_text());                             \
    } while (0)

/* The sentence of the last failure contains `part`. */
#define assert_error_says(part)                                                                              \
    do {                                                                                                     \
        const char *part_ = (part);                                                                          \
        if (!strstr(manta_error_text(), part_))                                                              \
            fail_msg("\"%s\" does not say \"%s\"", manta_error_text(), part_);                               \
    } while (0)

/* The call fails with `code`, and its sentence contains `part`. */
#define assert_fails_with(call, code, part)                                                                  \
    do {                                                                                                     \
        manta_status got_ = (call), want_ = (code);                                                          \
        if (got_ != want_)                                                                                   \
            fail_msg("%s, expected %s: \"%s\"", manta_status_name(got_), manta_status_name(want_),           \
                     manta_error_text());                                                                    \
        assert_error_says(part);                                                                             \
    } while (0)

#endif
