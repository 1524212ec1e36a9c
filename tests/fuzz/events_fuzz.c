/* events_fuzz.c - event files. The first byte chooses: 0 a file; 1 bare events,
 * each behind a byte of length, which are framed here. */
#include "format/codec/record.h"
#include "format/tensorboard/events.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    manta_events_log *l = NULL;
    buf b = {0};

    if (size == 0) return 0;
    if (data[0] == 1) {
        for (size_t at = 1; at < size;) {
            size_t n = data[at++];
            if (n > size - at) n = size - at;
            record_add(&b, data + at, n);
            at += n;
        }
    } else {
        buf_add(&b, data + 1, size - 1);
    }
    manta_status st = events_read_bytes("fuzz", (const uint8_t *)buf_text(&b), b.n, &l);
    fuzz_expect(st);
    for (int i = 0; !st && i < manta_events_tags(l); i++) {
        manta_events_tag t = manta_events_tag_at(l, i);
        volatile double sum = 0;
        for (int64_t k = 0; k < t.count; k++) sum += t.points[k].value;
        (void)sum;
        if (!t.name || !t.plugin) abort();
    }
    manta_events_log_free(l);
    buf_release(&b);
    fuzz_balance(live);
    return 0;
}
