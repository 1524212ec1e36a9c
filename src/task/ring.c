/* ring.c - see ring.h. */
#include "task/ring.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "os/shm.h"

#define HEAD_SIZE   8 /* of a message: its length, and padding that keeps its bytes aligned */

#define CHECK_BYTES (RING_SIZE / 2) /* that are read between two looks whether the writer waits */

_Static_assert(RING_SIZE - RING_MESSAGE - HEAD_SIZE > CHECK_BYTES,
               "a reader must come past a look while it empties a ring that was full (ring.h)");

CRASH_DEFINE(ring, RING_CRASH_POINTS)

typedef struct ring_words {
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint64_t head;
    _Alignas(64) _Atomic uint64_t waits;
} ring_words;

struct channel {
    ring_words *words; /* [2], the shared page */
    char *out, *in; /* the bytes of each ring, mapped twice */
    int side;
    uint64_t tail, seen_head; /* of the ring we write: ours, and the last head we saw */
    size_t wanted; /* bytes that did not fit into it; 0: nobody waits */
    uint64_t head, seen_tail; /* of the ring we read */
    size_t unchecked; /* bytes that were read since we looked whether its writer waits */
};

size_t channel_size(void)
{
    return shm_page() + 2 * RING_SIZE;
}

manta_status channel_open(int fd, int side, channel **out)
{
    manta_status st;
    size_t size;
    void *p;
    channel *c = mem_new(sizeof *c);

    c->side = side;
    if ((st = shm_size(fd, &size))) goto out;
    if (size != channel_size()) {
        st = manta_fail(MANTA_ECORRUPT, "a channel has %zu bytes, expected %zu", size, channel_size());
        goto out;
    }
    if ((st = shm_map(fd, shm_page(), true, &p))) goto out;
    c->words = p;
    if ((st = shm_map_twice(fd, shm_page() + (size_t)side * RING_SIZE, RING_SIZE, &p))) goto out;
    c->out = p;
    if ((st = shm_map_twice(fd, shm_page() + (size_t)!side * RING_SIZE, RING_SIZE, &p))) goto out;
    c->in = p;
    *out = c;
    c = NULL;
out:
    channel_free(c);
    return st;
}

void channel_free(channel *c)
{
    if (!c) return;
    shm_unmap(c->words, shm_page());
    shm_unmap(c->out, 2 * RING_SIZE);
    shm_unmap(c->in, 2 * RING_SIZE);
    mem_free(c);
}

static size_t message_padded(size_t n)
{
    return HEAD_SIZE + (n + 7) / 8 * 8;
}

static bool message_fits(channel *c, size_t need)
{
    if (c->tail + need - c->seen_head <= RING_SIZE) return true;
    c->seen_head = atomic_load_explicit(&c->words[c->side].head, memory_order_acquire);
    /* A head that cannot be makes the subtraction wrap, and the ring full for ever. */
    return c->tail + need - c->seen_head <= RING_SIZE;
}

/* The reader is asked for its bell, unless it has made room meanwhile. */
static bool begin_wait(channel *c, size_t need)
{
    atomic_store_explicit(&c->words[c->side].waits, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    c->wanted = need;
    return message_fits(c, need);
}

void channel_end_wait(channel *c)
{
    c->wanted = 0;
    atomic_store_explicit(&c->words[c->side].waits, 0, memory_order_relaxed);
}

bool channel_has_room(channel *c)
{
    return c->wanted > 0 && message_fits(c, c->wanted);
}

bool channel_send(channel *c, const void *data, size_t n)
{
    size_t need = message_padded(n);
    uint32_t length = (uint32_t)n;

    assert(n <= RING_MESSAGE);
    if (!message_fits(c, need) && !begin_wait(c, need)) return false;
    if (c->wanted > 0) channel_end_wait(c);
    char *at = c->out + c->tail % RING_SIZE;
    memcpy(at, &length, sizeof length);
    ring_crash(RING_CRASH_SEND_LENGTH);
    memcpy(at + HEAD_SIZE, data, n);
    ring_crash(RING_CRASH_SEND_BYTES);
    c->tail += need;
    atomic_store_explicit(&c->words[c->side].tail, c->tail, memory_order_release);
    ring_crash(RING_CRASH_SEND_PUBLISHED);
    return true;
}

bool channel_ready(channel *c)
{
    if (c->seen_tail == c->head)
        c->seen_tail = atomic_load_explicit(&c->words[!c->side].tail, memory_order_acquire);
    return c->seen_tail != c->head;
}

manta_status channel_recv(channel *c, buf *into)
{
    uint32_t length;

    if (!channel_ready(c)) return MANTA_EBUSY;
    uint64_t left = c->seen_tail - c->head;
    const char *at = c->in + c->head % RING_SIZE;
    if (left > RING_SIZE || left < HEAD_SIZE)
        return manta_fail(MANTA_ECORRUPT, "a ring says that %llu bytes wait in it, expected %d to %zu",
                          (unsigned long long)left, HEAD_SIZE, RING_SIZE);
    memcpy(&length, at, sizeof length);
    if (length > RING_MESSAGE || message_padded(length) > left)
        return manta_fail(
            MANTA_ECORRUPT,
            "a message in a ring says that it has %u bytes, expected at most the %llu that wait", length,
            (unsigned long long)left);
    buf_add(into, at + HEAD_SIZE, length);
    ring_crash(RING_CRASH_RECV_COPIED);
    c->head += message_padded(length);
    atomic_store_explicit(&c->words[!c->side].head, c->head, memory_order_release);
    c->unchecked += message_padded(length);
    ring_crash(RING_CRASH_RECV_DONE);
    return MANTA_OK;
}

bool channel_writer_waits(channel *c)
{
    if (c->unchecked < CHECK_BYTES) return false;
    c->unchecked = 0;
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&c->words[!c->side].waits, memory_order_relaxed) != 0;
}
