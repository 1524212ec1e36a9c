/* launch/ask.h - whether an address can be reached and somebody listens there. */
#ifndef LAUNCH_ASK_H
#define LAUNCH_ASK_H

#include "base/status.h"

/* Connects to "host:port" and closes. MANTA_ENOENT nobody knows the name; MANTA_ETIMEDOUT no answer within
 * timeout_ms; MANTA_EDIED it is refused, or there is no way to the host. */
manta_status ask_address(const char *address, int timeout_ms) MANTA_MUST_USE;

#endif
