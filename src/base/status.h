/* base/status.h - the one macro for passing a failure on, and what the analyzer is told of it. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <manta/status.h>

/* Returns from the calling function when `call` fails; use it when there is
 * nothing to undo, and one `out:` label otherwise. */
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        manta_status try_status_ = (call);                                                                   \
        if (try_status_) return try_status_;                                                                 \
    } while (0)

/* A failure is never MANTA_OK. clang's analyzer cannot see that from here, and
 * would follow each one into the code behind it as if all had gone well. */
#ifdef __clang_analyzer__
#define manta_fail(code, ...)                                                                                \
    ((void)(manta_fail)((code), __VA_ARGS__), (code) != MANTA_OK ? (code) : MANTA_EINTERNAL)
#endif

#endif
