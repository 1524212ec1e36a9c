/* manta.h - all of Manta's public interface. */
#ifndef MANTA_H
#define MANTA_H

#include <manta/array.h>
#include <manta/status.h>
#include <manta/version.h>

#endif
