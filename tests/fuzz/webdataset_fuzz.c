/* webdataset_fuzz.c - tar archives of samples, packed or not; the first byte
 * chooses the members. */
#include "format/webdataset/webdataset.h"
#include "fuzz_dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const x[] = {NULL, "txt", "npy", "bin", "png;jpg", "json.a", "x.bin", "cls"};
    static const char *const y[] = {NULL, "cls", "json.label", NULL};
    int64_t live = mem_live();
    manta_dataset *d = NULL;

    if (size == 0) return 0;
    const manta_open_options o = {.allow_nan = data[0] & 32, .raw = data[0] & 64};
    manta_status st = webdataset_open_file(seek_over("fuzz", data + 1, size - 1), x[data[0] % 8],
                                           y[data[0] / 8 % 4], &o, &d);
    fuzz_dataset(st, d, 4);
    fuzz_balance(live);
    return 0;
}
