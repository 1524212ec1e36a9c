/* base/block.h - the text of a block (manta/tool_text.h), for who must not wait until standard error takes it. */
#ifndef BASE_BLOCK_H
#define BASE_BLOCK_H

#include <manta/tool_text.h>

#include "base/buf.h"

/* Adds the block as manta_block_show() writes it to standard error: whole lines, in colour where that has any. */
void block_put(const manta_block *b, buf *out);

#endif
