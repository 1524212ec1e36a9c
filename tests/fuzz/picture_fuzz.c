/* picture_fuzz.c - PNG and JPEG decoding and resizing; the first byte chooses
 * the number of channels. */
#include "format/image/picture.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int channels[] = {0, 1, 3};
    int64_t live = mem_live();
    picture p = {0}, s = {0};
    uint8_t small[8 * 8 * 3];

    if (size == 0) return 0;
    manta_status st = picture_size("fuzz", data + 1, size - 1, &s);
    fuzz_expect(st);
    /* what takes a second to decode honestly is no finding */
    if (st || (int64_t)s.width * s.height > 1 << 20) return 0;
    st = picture_decode("fuzz", data + 1, size - 1, channels[data[0] % 3], &p);
    fuzz_expect(st);
    if (!st) picture_resize(&p, 8, 8, small);
    picture_release(&p);
    fuzz_balance(live);
    return 0;
}
