/* spec.h - what the text of a dataset specification means. Pure. */
#ifndef FORMAT_SPEC_H
#define FORMAT_SPEC_H

#include <stdbool.h>

#include <manta/table.h>

#include "base/status.h"

typedef enum spec_kind {
    SPEC_BUILTIN, /* a = name, test */
    SPEC_FILES, /* a, and b or NULL: .npy or IDX files; a alone may be a folder */
    SPEC_NPZ, /* a = path, x, and y or NULL; both NULL: not said, or columns */
    SPEC_CSV, /* a = path, x = columns joined with '+' or NULL, y = label column or NULL, how */
    SPEC_PARQUET, /* likewise */
    SPEC_TAR /* a = path with ranges or stars, x and y = what members are called, or NULL */
} spec_kind;

typedef struct spec {
    spec_kind kind;
    bool test;
    char *a, *b, *x, *y; /* owned */
    char *columns; /* COLUMN=MEMBER,..., or NULL; owned */
    manta_table_options how; /* of a table: what was said but for x and y */
    bool named_y; /* of a table: y was written as y=, not as label= */
    bool plain; /* of a table: nothing was said that needs manta/table.h */
} spec;

/* MANTA_EINVAL, saying what can be written. *out untouched on failure. */
manta_status spec_parse(const char *text, spec *out);
void spec_release(spec *s); /* accepts zeroed memory */

#endif
