/* fetch.h - one file from an address of HTTP into a folder. */
#ifndef FORMAT_FETCH_H
#define FORMAT_FETCH_H

#include "base/status.h"

/* Receives the file whole, as dir/name, or leaves what is there. */
manta_status fetch_to(const char *url, const char *dir, const char *name) MANTA_MUST_USE;

#endif
