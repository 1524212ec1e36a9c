/* npy_fuzz.c - .npy; what is read is written and read again. */
#include "format/array/npy.h"
#include "fuzz.h"

static void write_and_read(const blob *b)
{
    buf file = {0};
    blob again = {0};

    if (npy_header(&b->array, &file)) abort();
    buf_add(&file, b->array.data, manta_array_bytes(&b->array));
    if (npy_parse("again", (const uint8_t *)file.at, file.n, true, &again)) abort();
    if (again.array.ndim != b->array.ndim || again.array.dtype != b->array.dtype) abort();
    if (memcmp(again.array.data, b->array.data, manta_array_bytes(&b->array)) != 0) abort();
    blob_release(&again);
    buf_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    blob b = {0};
    manta_status st = npy_parse("fuzz", data, size, true, &b);

    fuzz_expect(st);
    if (!st) write_and_read(&b);
    blob_release(&b);
    fuzz_expect(npy_parse("fuzz", data, size, false, &b));
    blob_release(&b);
    fuzz_balance(live);
    return 0;
}
