/* channel_fuzz.c - what lies in shared memory and another process wrote: a channel
 * whose other side writes whatever it likes, also while it is read; values and
 * failures out of it; and places in segments. */
#include <unistd.h>

#include "fuzz.h"
#include "net/wire.h"
#include "os/shm.h"
#include "os/socket.h"
#include "store/store.h"
#include "task/failure.h"
#include "task/proto.h"
#include "task/ring.h"
#include "task/value.h"

/* Reads a message as values, and touches every byte they promise. */
static void read_values(const buf *b)
{
    wire w = wire_of(b->at, b->n);
    volatile unsigned char sink = 0;

    while (!w.broken && w.at < w.end) {
        value v;
        value_take(&w, &v);
        if (w.broken) break;
        for (uint64_t i = 0; v.at && i < v.size; i += 61) sink = ((const unsigned char *)v.at)[i];
    }
    w = wire_of(b->at, b->n);
    failure *f = failure_take(&w);
    fuzz_expect(wire_end(&w, "failure"));
    failure_unref(f);
    (void)sink;
}

static void channel_of(const uint8_t *data, size_t size)
{
    int fd;
    void *at;
    channel *c;

    if (shm_new("fuzz", channel_size(), &fd) || shm_map(fd, channel_size(), true, &at) ||
        channel_open(fd, 0, &c))
        abort();
    buf into = {0};
    buf_reserve(&into, 8); /* as the runtime does: an empty message has an address, too */
    /* Parts of the input are written over head, tail and ring between reads. */
    for (int turn = 0; turn < 8 && size > 4; turn++) {
        size_t n = data[0] | (size_t)(data[1] & 15) << 8, offset = (data[2] | (size_t)data[3] << 8) * 4;
        data += 4;
        size -= 4;
        if (n > size) n = size;
        if (offset > channel_size() - n) offset = channel_size() - n;
        memcpy((char *)at + offset, data, n);
        data += n;
        size -= n;
        for (int i = 0; i < 4; i++) {
            buf_cut(&into, 0);
            manta_status st = channel_recv(c, &into);
            if (st == MANTA_EBUSY) break;
            fuzz_expect(st);
            if (st) break;
            if (into.n > RING_MESSAGE) abort();
            read_values(&into);
        }
        (void)channel_send(c, "answer", 6);
    }
    buf_release(&into);
    channel_free(c);
    shm_unmap(at, channel_size());
    socket_close_all(&fd, 1);
}

static int segment_fd;

static manta_status no_segment(void *ctx, size_t least, size_t wanted, uint64_t *id, int *fd)
{
    (void)ctx;
    (void)least;
    (void)wanted;
    (void)id;
    (void)fd;
    return manta_fail(MANTA_ENOSPC, "full");
}

static manta_status one_segment(void *ctx, uint64_t id, int *fd)
{
    (void)ctx;
    if (id != 1) return manta_fail(MANTA_ENOENT, "gone");
    *fd = dup(segment_fd);
    return MANTA_OK;
}

static void give_back(void *ctx, uint64_t id)
{
    (void)ctx;
    (void)id;
}

static void let_go(void *ctx, uint64_t id, uint32_t n)
{
    (void)ctx;
    (void)id;
    (void)n;
}

/* Whatever a place says, what is pinned can be read. */
static void places_of(const uint8_t *data, size_t size)
{
    if (shm_new("fuzz", 2 * shm_page(), &segment_fd)) abort();
    store *s = store_new(
        (store_source){.make = no_segment, .open = one_segment, .give_back = give_back, .let_go = let_go});
    volatile unsigned char sink = 0;
    for (; size >= 18; data += 18, size -= 18) {
        store_place place = {.segment = data[0] % 3u};
        uint64_t n;
        const void *at;
        memcpy(&place.at, data + 1, 8);
        memcpy(&n, data + 9, 8);
        if (data[0] & 64) place.at %= 2 * shm_page();
        if (data[0] & 128) n %= 2 * shm_page();
        manta_status st = store_pin(s, place, (size_t)n, &at);
        fuzz_expect(st);
        for (uint64_t i = 0; !st && i < n; i++) sink = ((const unsigned char *)at)[i];
        if (data[17] & 1) store_unpin(s, place);
        if (data[17] & 2) store_give(s, place);
        if (data[17] & 4) (void)store_ask(s, place.segment);
        if (data[17] & 8) store_forget(s, place.segment);
    }
    (void)sink;
    store_free(s);
    socket_close_all(&segment_fd, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();

    if (size == 0) return 0;
    if (data[0] & 1)
        channel_of(data + 1, size - 1);
    else
        places_of(data + 1, size - 1);
    buf b = {0};
    buf_add(&b, data, size);
    read_values(&b);
    buf_release(&b);
    fuzz_balance(live);
    return 0;
}
