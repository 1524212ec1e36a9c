/* packed_fuzz.c - a packed value as a reader meets it: in memory that its writer can still
 * change. An input is the value; where it starts in memory, and what is changed behind the reader's
 * back, follows from its last byte. Every byte of every part is read. */
#include "fuzz.h"
#include "task/packed.h"

static void read_part(const char *at, size_t n, const char *low, const char *high)
{
    volatile char sink = 0;

    if (n > 0 && (at < low || at + n > high)) abort();
    for (size_t i = 0; i < n; i++) sink = (char)(sink ^ at[i]);
    (void)sink;
}

static void read_value(packed_index *x, const char *at, size_t size)
{
    manta_packed p;
    const uint64_t *ids;

    packed_view(x, at, &p);
    const bool is_there = (const char *)p.head >= at && (const char *)p.head <= at + size;
    const char *low = is_there ? at : (const char *)p.head, *high = is_there ? at + size : low + size;
    read_part(p.head, p.head_size, low, high);
    for (size_t i = 0; i < p.n_blocks; i++) {
        if ((uintptr_t)p.blocks[i].at % MANTA_PACKED_ALIGN != 0) abort();
        read_part(p.blocks[i].at, p.blocks[i].size, low, high);
    }
    if (packed_index_inner(x, &ids) != p.n_refs + p.n_actors) abort();
    uint64_t sum = 0; /* each is read, which is all */
    for (size_t i = 0; i < p.n_refs; i++) sum += p.refs[i].id;
    for (size_t i = 0; i < p.n_actors; i++) sum += p.actors[i].id;
    __asm__ volatile("" : : "r"(sum));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t before = mem_live();
    const unsigned last = size > 0 ? data[size - 1] : 0;
    const size_t shift = (last & 7) * 8; /* a message's bytes are aligned to 8 */
    char *memory = mem_try(size + 64);

    if (!memory) return 0;
    char *at = memory + shift;
    if (size > 0) memcpy(at, data, size);
    packed_index *x = packed_index_new(at, size);
    if ((x != NULL) != packed_is_sound(at, size)) abort();
    if (x) {
        if (last & 8) memset(at, (int)last, size < 64 ? size : 64); /* its writer has second thoughts */
        read_value(x, at, size);
    }
    mem_free(x);
    mem_try_free(memory);
    fuzz_balance(before);
    return 0;
}
