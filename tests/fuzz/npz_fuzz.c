/* npz_fuzz.c - zip archives and the arrays in them. */
#include "format/array/npz.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    zip z = {0};
    manta_status st = zip_parse("fuzz", data, size, &z);

    fuzz_expect(st);
    for (int i = 0; !st && i < z.n; i++) {
        const uint8_t *bytes = NULL;
        void *owned = NULL;
        blob b = {0};
        manta_status sub = zip_extract(&z, &z.entries[i], &bytes, &owned);
        fuzz_expect(sub);
        mem_try_free(owned);
        fuzz_expect(npz_member(&z, z.entries[i].name, false, &b));
        blob_release(&b);
    }
    zip_release(&z);
    fuzz_balance(live);
    return 0;
}
