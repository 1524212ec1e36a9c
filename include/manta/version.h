/* manta/version.h - which Manta this is. The build reads the numbers from
 * here, so this is the one place that states them. */
#ifndef MANTA_VERSION_H
#define MANTA_VERSION_H

#define MANTA_VERSION_MAJOR 0
#define MANTA_VERSION_MINOR 1
#define MANTA_VERSION_PATCH 0

#define MANTA_VERSION_TEXT  "0.1.0"

#endif
