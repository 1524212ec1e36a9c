/* ok.h - asserts that a call went well, and shows the sentence of one that did not. */
#ifndef TESTS_UNIT_OK_H
#define TESTS_UNIT_OK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/status.h"

#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        manta_status ok_ = (call);                                                                           \
        if (ok_) fail_msg("%s: %s", manta_status_name(ok_), manta_error_text());                             \
    } while (0)

#endif
