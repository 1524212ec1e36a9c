/* fuzz.h - what all fuzz targets check beside not crashing: a refusal has a
 * sentence, and nothing is left allocated. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_expect(manta_status st)
{
    if (st && manta_error_text()[0] == '\0') abort();
    if (st == MANTA_EINTERNAL) abort();
}

static inline void fuzz_balance(int64_t before)
{
    if (mem_live() != before) abort();
}

#endif
