/* safetensors_fuzz.c - safetensors files: what is accepted covers its data, and
 * every view lies within it. */
#include "format/safetensors/safetensors.h"
#include "fuzz.h"

static volatile unsigned seen;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    uint8_t *copy = mem_try_raw(size ? size : 1); /* views may be written to */
    safetensors s = {0};
    manta_status st;
    uint64_t covered = 0;

    memcpy(copy, data, size);
    fuzz_expect(st = safetensors_parse("fuzz", copy, size, &s));
    for (int i = 0; !st && i < s.n; i++) {
        manta_array a;
        manta_status sub = safetensors_array(&s, i, &a);
        fuzz_expect(sub);
        covered += s.tensors[i].end - s.tensors[i].begin;
        if (sub) continue;
        if (manta_array_bytes(&a) != s.tensors[i].end - s.tensors[i].begin) abort();
        for (size_t k = 0; k < manta_array_bytes(&a); k++) seen += ((const uint8_t *)a.data)[k];
    }
    if (!st && covered != s.size - s.data) abort();
    safetensors_release(&s);
    mem_try_free(copy);
    fuzz_balance(live);
    return 0;
}
