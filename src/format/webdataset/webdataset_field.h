/* webdataset_field.h - what a member of a sample holds, and its decoding. */
#ifndef FORMAT_WEBDATASET_WEBDATASET_FIELD_H
#define FORMAT_WEBDATASET_WEBDATASET_FIELD_H

#include "format/image/image_size.h"

typedef enum webdataset_kind {
    WEBDATASET_IMAGE,
    WEBDATASET_ARRAY,
    WEBDATASET_BYTES,
    WEBDATASET_WHOLE, /* a number that must be whole */
    WEBDATASET_NUMBER,
    WEBDATASET_JSON
} webdataset_kind;

typedef struct webdataset_field {
    char *names; /* extensions with semicolons between them; owned */
    char *key; /* the key that WEBDATASET_JSON looks for; owned */
    webdataset_kind kind;
    bool decided; /* column and image size are known */
    bool allow_nan;
    image_size image;
    manta_column_spec column;
} webdataset_field;

/* What `text` (see webdataset.h) means. MANTA_EINVAL, naming what can be. */
manta_status webdataset_field_init(webdataset_field *f, const char *column, const char *text, bool allow_nan);
void webdataset_field_release(webdataset_field *f); /* accepts zeroed memory */

/* Whether members with that extension are it. */
bool webdataset_field_is(const webdataset_field *f, const char *extension);

/* Takes dtype and shape of the column from the first sample's member. */
manta_status webdataset_field_decide(webdataset_field *f, const manta_open_options *o, const char *name,
                                     const uint8_t *data, size_t size);

/* Decodes a member into a sample's place. `name` is for sentences; one zero byte
 * follows the data. */
manta_status webdataset_field_read(const webdataset_field *f, const char *name, const uint8_t *data,
                                   size_t size, void *out);

#endif
