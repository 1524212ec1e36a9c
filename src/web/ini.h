/* web/ini.h - files like ~/.aws/credentials: sections with names and values. Pure. */
#ifndef WEB_INI_H
#define WEB_INI_H

#include <stddef.h>

/* The value called `name` in the section [section]; of several the last. Lines that
 * begin with a space belong to the value before them, and are no values of their own.
 * NULL: there is none. Owned by the caller. */
char *ini_get(const char *text, size_t n, const char *section, const char *name);

#endif
