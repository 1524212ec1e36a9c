/* pickle.h - the part of Python's pickle that describes data, and no more.
 *
 * A pickle is a program for a stack machine. This machine has the operations
 * that torch.load(weights_only=True) allows; it calls nothing. What a program
 * names (GLOBAL) must be in the caller's list, and what it calls (REDUCE) must
 * be marked there as something that may be called: the call then is a value,
 * PICKLE_CALL, that the caller makes sense of.
 *
 * Values refer to each other by number, may be shared, and may form cycles
 * (a list can be appended to itself): who walks them bounds the depth. */
#ifndef FORMAT_TORCH_PICKLE_H
#define FORMAT_TORCH_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PICKLE_MAX_VALUES (1 << 22)
#define PICKLE_MAX_STACK  (1 << 20)
#define PICKLE_MAX_MEMO   (1 << 20)

typedef enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL, /* i */
    PICKLE_INT, /* i */
    PICKLE_FLOAT, /* f */
    PICKLE_TEXT, /* text, n bytes */
    PICKLE_TUPLE, /* items */
    PICKLE_LIST, /* items */
    PICKLE_SET, /* items */
    PICKLE_DICT, /* items: key, value, key, value, ... as they were set */
    PICKLE_GLOBAL, /* i: place in the caller's list */
    PICKLE_CALL, /* i: place in the caller's list; items[0]: the arguments, a tuple */
    PICKLE_PERSISTENT /* items[0]: the identity, whatever it is */
} pickle_kind;

typedef struct pickle_value {
    pickle_kind kind;
    uint32_t n, cap; /* cap: of items, 0 for other kinds */
    union {
        int64_t i;
        double f;
        const char *text; /* into the pickle: UTF-8, not terminated */
        uint32_t *items; /* owned */
    } u;
    int64_t callee; /* PICKLE_CALL */
} pickle_value;

typedef enum pickle_use {
    PICKLE_NAMED, /* may be named */
    PICKLE_CALLED, /* may be called too */
    PICKLE_MAKES_DICT /* a call without arguments makes a PICKLE_DICT */
} pickle_use;

typedef struct pickle_global {
    const char *module, *name;
    pickle_use use;
} pickle_global;

typedef struct pickle {
    pickle_value *values; /* owned */
    uint32_t n, cap;
    uint32_t root;
} pickle;

/* Runs the program in data[0..size), which must outlive *out; `name` is for
 * sentences. MANTA_ECORRUPT with the offset; MANTA_EPERM a name that is not in
 * the list, or a call that is not allowed: the sentence says which. */
manta_status pickle_parse(const char *name, const uint8_t *data, size_t size, const pickle_global *globals,
                          int n_globals, pickle *out) MANTA_MUST_USE;
void pickle_release(pickle *p); /* accepts zeroed memory */

/* Whether v is that text. */
bool pickle_is_text(const pickle_value *v, const char *text);

/* UTF-8 without surrogates and without longer forms than needed. */
bool pickle_is_utf8(const uint8_t *p, size_t n);

#endif
