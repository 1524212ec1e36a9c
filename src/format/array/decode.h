/* decode.h - work that goes on behind an opened dataset.
 *
 * Unpacking 60,000 images takes about as long as planning the model that will
 * train on them, so the one happens on a thread of its own beneath the other. */
#ifndef FORMAT_ARRAY_DECODE_H
#define FORMAT_ARRAY_DECODE_H

#include "base/status.h"

typedef struct decode decode;

/* Runs fn(ctx) on a new thread, or at once when there is none to be had.
 * ctx must live until decode_free(). Never NULL. */
decode *decode_start(manta_status (*fn)(void *ctx), void *ctx);

/* Waits for it and says how it went, raising its error on this thread. Any
 * thread, any number of times; quick once it is done. In a process forked
 * meanwhile, where the thread does not exist, the work is done here. */
manta_status decode_wait(decode *d);

void decode_free(decode *d); /* waits; accepts NULL */

#endif
