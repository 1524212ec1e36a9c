/* base/mem.h - allocation, with a hook through which a test makes it fail.
 *
 * Control memory (small, sized by us) comes from mem_new() and friends, which
 * end the program when there is none, so that no code is cluttered for it.
 * Memory sized by a user, a file or a peer comes from mem_try(), which returns
 * NULL. Only mem_try() can be made to fail. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#if defined(__GNUC__)
#define MEM_NEVER_NULL __attribute__((returns_nonnull))
#else
#define MEM_NEVER_NULL
#endif

void *mem_new(size_t size) MEM_NEVER_NULL; /* zeroed; aborts when memory is gone */
void *mem_resize(void *p, size_t size) MEM_NEVER_NULL; /* realloc; aborts when memory is gone */
char *mem_strdup(const char *s) MEM_NEVER_NULL;
char *mem_strndup(const char *s, size_t n) MEM_NEVER_NULL;
char *mem_printf(const char *fmt, ...) MEM_NEVER_NULL MANTA_PRINTF(1, 2); /* owned by the caller */
void mem_free(void *p); /* for all of these; accepts NULL */

/* Memory of a size someone else chose, 64-byte aligned and zeroed, or NULL: there
 * is none, or the size is 1 TiB or more. */
void *mem_try(size_t size);
/* Memory of mem_try() whose contents are undefined, for buffers that are written whole. */
void *mem_try_raw(size_t size);
void mem_try_free(void *p); /* accepts NULL */

/* Delivers n * size bytes of mem_try(). MANTA_ENOMEM, naming `what`, when there are not
 * so many or the product overflows. *out: give back with mem_try_free(); untouched on
 * failure. */
manta_status mem_try_array(int64_t n, size_t size, const char *what, void **out);

/* Has the system make the pages of writable memory now, at once, instead of one by
 * one at their first use: a page fault each, which is a quarter of the time that a
 * file takes to read. Where it does not know how (before Linux 5.14), nothing happens. */
void mem_touch(void *at, size_t n);

/* Test hook: the n-th mem_try() from now (counting from 1) fails; with
 * `sticky` every later one too. n = 0 turns it off. */
void mem_fail_at(int64_t n, int sticky);
int64_t mem_failures(void); /* how many calls the hook has failed since mem_fail_at() */
int64_t mem_live(void); /* blocks not yet given back, of all kinds */
int64_t mem_count(void); /* allocations ever made, of all kinds: a running step makes none */

#endif
