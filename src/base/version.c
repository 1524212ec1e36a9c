/* version.c - the version of the library itself, whatever headers a program was
 * compiled with. */
#include <manta/version.h>

const char *manta_version(void)
{
    return MANTA_VERSION_TEXT;
}
