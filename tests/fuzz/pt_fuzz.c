/* pt_fuzz.c - PyTorch's files: the first byte chooses between an archive as it
 * is and a pickle that this file puts into an archive with one storage, so that
 * no checksum keeps the fuzzer from the machine behind it. */
#include "base/buf.h"
#include "format/torch/pt.h"
#include "fuzz.h"

static volatile unsigned seen;

/* Every element of every view is read: a sanitizer sees what lies beyond. */
static void touch(const manta_array *a)
{
    int64_t index[MANTA_MAX_DIMS] = {0}, n = manta_array_count(a), at = 0;
    size_t size = manta_dtype_size(a->dtype);

    if (n > 1 << 16) n = 1 << 16;
    for (int64_t k = 0; k < n; k++) {
        seen += ((const uint8_t *)a->data)[at * (int64_t)size];
        for (int i = a->ndim - 1; i >= 0; i--) {
            at += a->strides[i];
            if (++index[i] < a->shape[i]) break;
            at -= a->strides[i] * a->shape[i];
            index[i] = 0;
        }
    }
}

static void put(buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) buf_add_char(b, (char)(v >> 8 * i));
}

static uint32_t crc_of(const uint8_t *p, size_t n)
{
    uint32_t c = ~0u;

    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (0xedb88320u & (0u - (c & 1)));
    }
    return ~c;
}

static void put_member(buf *b, buf *directory, const char *name, const uint8_t *data, size_t n)
{
    size_t at = b->n;

    for (int i = 0; i < 2; i++) {
        buf *to = i ? directory : b;
        put(to, i ? 0x02014b50u : 0x04034b50u, 4);
        if (i) put(to, 20, 2);
        put(to, 20, 2);
        put(to, 0, 8);
        put(to, crc_of(data, n), 4);
        put(to, n, 4);
        put(to, n, 4);
        put(to, strlen(name), 2);
        put(to, 0, 2);
        if (i) put(to, 0, 8);
        if (i) put(to, 0, 2);
        if (i) put(to, at, 4);
        buf_add_text(to, name);
    }
    buf_add(b, data, n);
}

static void make_archive(buf *b, const uint8_t *pickle, size_t n)
{
    static const uint8_t storage[24] = {1, 2, 3};
    buf directory = {0};
    size_t at;

    put_member(b, &directory, "r/data.pkl", pickle, n);
    put_member(b, &directory, "r/version", (const uint8_t *)"3", 1);
    put_member(b, &directory, "r/data/0", storage, sizeof storage);
    at = b->n;
    buf_add(b, directory.at, directory.n);
    put(b, 0x06054b50u, 4);
    put(b, 0, 4);
    put(b, 3, 2);
    put(b, 3, 2);
    put(b, directory.n, 4);
    put(b, at, 4);
    put(b, 0, 2);
    buf_release(&directory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    buf b = {0};
    pt_file f = {0};
    input in = {0};
    manta_status st;

    if (size == 0) return 0;
    if (data[0] & 1) {
        make_archive(&b, data + 1, size - 1);
    } else {
        buf_add(&b, data + 1, size - 1);
    }
    in = (input){.path = mem_strdup("fuzz"), .data = mem_try_raw(b.n + 1), .size = b.n};
    if (b.n) memcpy(in.data, b.at, b.n);
    fuzz_expect(st = pt_parse(&in, &f));
    for (size_t i = 0; !st && i < f.tensors.n; i++) {
        manta_array a;
        manta_status sub = pt_array(&f, (int)i, &a);
        fuzz_expect(sub);
        if (!sub) touch(&a);
    }
    pt_release(&f);
    input_release(&in);
    buf_release(&b);
    fuzz_balance(live);
    return 0;
}
