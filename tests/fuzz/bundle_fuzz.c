/* bundle_fuzz.c - TensorFlow checkpoints. The first byte chooses: 0 an index
 * file; 1 an object graph; 2 an index whose sums are put right, so that what
 * lies behind them is reached. */
#include "base/buf.h"
#include "format/codec/record.h"
#include "format/tensorflow/bundle.h"
#include "fuzz.h"

/* A table of the bytes: first byte of each piece its key's length, second its value's. */
static void rebuild(const uint8_t *data, size_t size, bundle_table *t)
{
    static const uint8_t header[] = {8, 1, 0x1a, 2, 8, 1};

    t->block_size = 64;
    bundle_table_add(t, "", 0, header, sizeof header);
    for (size_t at = 0; at + 2 <= size;) {
        size_t k = data[at] % 16, n = data[at + 1];
        at += 2;
        if (k > size - at) k = size - at;
        if (n > size - at - k) n = size - at - k;
        bundle_table_add(t, (const char *)data + at, k, data + at + k, n);
        at += k + n;
    }
    bundle_table_finish(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    bundle b = {0};
    bundle_names names = {0};
    bundle_table t = {0};
    manta_status st;

    if (size == 0) return 0;
    switch (data[0]) {
    case 1: st = bundle_graph_read("fuzz", data + 1, size - 1, &names); break;
    case 2:
        rebuild(data + 1, size - 1, &t);
        st = bundle_parse("fuzz", (const uint8_t *)t.file.at, t.file.n, &b);
        break;
    default: st = bundle_parse("fuzz", data + 1, size - 1, &b);
    }
    fuzz_expect(st);
    for (size_t i = 0; i < b.entries.n; i++) {
        char *name = bundle_name_of_key(b.entries.at[i].key);
        char *key = bundle_key(name);
        mem_free(name);
        mem_free(key);
        if (!bundle_find(&b, b.entries.at[i].key)) abort();
    }
    bundle_names_release(&names);
    bundle_release(&b);
    bundle_table_release(&t);
    fuzz_balance(live);
    return 0;
}
