/* manta/version.h - which Manta this is. The build reads the numbers from
 * here, so this is the one place that states them. docs/abi.md says what may
 * change between two of them. */
#ifndef MANTA_VERSION_H
#define MANTA_VERSION_H

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_VERSION_MAJOR 0
#define MANTA_VERSION_MINOR 2
#define MANTA_VERSION_PATCH 0

#define MANTA_VERSION_TEXT  "0.2.0"

/* The version of the library that runs, such as "0.2.0"; the macros are those of
 * the headers that the program was compiled with. Static. */
MANTA_API const char *manta_version(void);

#ifdef __cplusplus
}
#endif
#endif
