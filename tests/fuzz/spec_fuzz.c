/* spec_fuzz.c - dataset specifications. */
#include "format/spec.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    char *text = mem_strndup((const char *)data, size);
    spec s = {0};
    manta_status st = spec_parse(text, &s);

    fuzz_expect(st);
    if (!st && (!s.a || !s.a[0])) abort(); /* there is always something to open */
    spec_release(&s);
    mem_free(text);
    fuzz_balance(live);
    return 0;
}
