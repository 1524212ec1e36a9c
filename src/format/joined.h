/* joined.h - a dataset out of several: NAME=SPEC,NAME=SPEC,...
 *
 * Each SPEC is a specification of its own; one of its columns becomes the column NAME:
 *
 *     image=photos.npy,meta=f.csv:x=age+income,y=labels.npy
 *
 * The column is the one called NAME, else the only one, else x. All have as many samples. A comma
 * ends a SPEC only where a NAME and "=" follow it, because specifications have commas too. */
#ifndef FORMAT_JOINED_H
#define FORMAT_JOINED_H

#include <manta/data_file.h>

/* Whether the text begins with NAME=, and no file of that name is meant. */
bool joined_is_spec(const char *text);

/* Opens all and puts them side by side. MANTA_EINVAL: a name twice, numbers of samples that differ;
 * MANTA_EUNSUPPORTED: a table whose numbers depend on other rows of it. */
manta_status joined_open(const char *text, const manta_open_options *o, manta_dataset **out);

#endif
