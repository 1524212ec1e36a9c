/* tfrecord_fuzz.c - TFRecord files, plain and packed, and the Examples in them.
 * The first byte chooses: 0 a file; 1 one Example, without its frame, which
 * chance would never give the right sums. */
#include "format/tfrecord/example.h"
#include "format/tfrecord/tfrecord.h"
#include "fuzz.h"

static void read_example(const uint8_t *data, size_t size)
{
    example_reader r = example_read(data, size);
    example_feature f;

    while (example_next(&r, &f) == PROTO_FIELD) {
        float v[8];
        int64_t k[8];
        const uint8_t *at;
        size_t n;
        int64_t count = example_count(&f);
        if (f.kind == EXAMPLE_FLOATS && example_floats(&f, 8, v) != count) abort();
        if (f.kind == EXAMPLE_INTS && example_ints(&f, 8, k) != count) abort();
        if (f.kind == EXAMPLE_BYTES && example_bytes(&f, &at, &n) > 0) {
            volatile uint8_t sum = 0;
            for (size_t i = 0; i < n; i++) sum ^= at[i];
            (void)sum;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    tfrecord *t = NULL;

    if (size == 0) return 0;
    if (data[0] == 1) {
        read_example(data + 1, size - 1);
        return 0;
    }
    manta_status st = tfrecord_of_bytes("fuzz", data + 1, size - 1, &t);
    fuzz_expect(st);
    if (!st) {
        tfrecord_reader *r = tfrecord_reader_new(t);
        for (int64_t i = 0; i < tfrecord_count(t); i++) {
            const uint8_t *record;
            size_t n;
            st = tfrecord_read(r, i, &record, &n);
            fuzz_expect(st);
            if (!st) read_example(record, n);
        }
        tfrecord_reader_free(r);
    }
    tfrecord_free(t);
    fuzz_balance(live);
    return 0;
}
