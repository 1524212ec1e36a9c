/* base/status.h - the one macro for passing a failure on. */
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

#endif
