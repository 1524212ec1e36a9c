/* os/image.h - names functions by where they lie in the files of a program.
 *
 * An address means nothing to another process: a program is loaded at another place each
 * time, and another program has other code there. What stays is the file (the program
 * or a library) with its build id, a digest of its contents that the linker wrote, and
 * the distance from its first byte. So a function is named "@BUILDID+DISTANCE", in
 * hexadecimal digits; every process that has loaded that very file finds the same
 * function by it, and no other process finds anything.
 *
 * Threads: any; libraries may be loaded meanwhile. */
#ifndef OS_IMAGE_H
#define OS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IMAGE_NAME = 96 }; /* bytes of a name with its end */

/* Writes the name of the function at `address`. False, and out is "": it lies in no file
 * with a build id (code made while the program runs, a linker that writes none). */
bool image_name(uintptr_t address, char out[IMAGE_NAME]);

/* The address of the function that image_name() called `name`; 0: this process has not
 * loaded that file, or there is no code at that place. Accepts any text. */
uintptr_t image_find(const char *name);

#endif
