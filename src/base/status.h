/* base/status.h - the short name of MANTA_TRY, and what the analyzer is told of it. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <manta/status.h>

/* MANTA_TRY under the name it has inside: use it when there is nothing to undo,
 * and one `out:` label otherwise. */
#define TRY(call) MANTA_TRY(call)

/* A failure is never MANTA_OK. clang's analyzer cannot see that from here, and
 * would follow each one into the code behind it as if all had gone well. */
#ifdef __clang_analyzer__
#define manta_fail(code, ...)                                                                                \
    ((void)(manta_fail)((code), __VA_ARGS__), (code) != MANTA_OK ? (code) : MANTA_EINTERNAL)
#endif

#endif
