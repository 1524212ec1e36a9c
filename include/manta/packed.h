/* manta/packed.h - values of several parts, for whoever brings types of their own to the
 * runtime: a language, a table, a nest of arrays.
 *
 *     manta_packed_block blocks[] = {{weights, sizeof weights}, {bias, sizeof bias}};
 *     manta_packed p = {.head = "dense", .head_size = 5, .blocks = blocks, .n_blocks = 2};
 *     manta_ref r = manta_put(manta_pack(&p));
 *     manta_ref y = manta_remote(apply, manta_pack(&p), r);
 *
 * A packed value is
 * - a head: any bytes, which say what the rest is; nothing here looks at them;
 * - blocks: pieces of memory of any size, each of which begins at a multiple of
 *   MANTA_PACKED_ALIGN bytes wherever it is read, so that it can be used where it lies;
 * - references and actor handles, counted as those of manta_refs() and manta_handle() are:
 *   what they name lives at least as long as the value.
 * Each of them may be missing. The number of blocks and of references together with handles
 * is limited (MANTA_PACKED_BLOCKS, MANTA_PACKED_INNER); the size is limited by the store.
 *
 * It goes wherever a value goes: into manta_put(), arguments, manta_return(), manta_yield(),
 * queues and maps. There it is copied once; manta_create_packed() and
 * manta_return_packed() save that copy too. Whoever reads it gets pointers to its parts:
 * read-only, and valid as long as those of the other functions of its kind (manta/task.h).
 * What a value of another process says about its parts is checked before anything
 * is read; one whose parts lie outside it, or in each other, is MANTA_ECORRUPT.
 *
 * Threads: as manta/task.h. */
#ifndef MANTA_PACKED_H
#define MANTA_PACKED_H

#include <manta/task.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_PACKED_ALIGN  64 /* bytes: where blocks begin */
#define MANTA_PACKED_BLOCKS 1048576 /* most blocks of a value */
#define MANTA_PACKED_INNER  15000 /* most references and handles of a value, together */

typedef struct manta_packed_block {
    const void *at;
    size_t size; /* bytes; 0: there is nothing to read at `at` */
} manta_packed_block;

typedef struct manta_packed {
    const void *head;
    size_t head_size;
    const manta_packed_block *blocks;
    size_t n_blocks;
    const manta_ref *refs;
    size_t n_refs;
    const manta_actor *actors;
    size_t n_actors;
} manta_packed;

/* The value that *p describes. *p and all it points to must stay until the call that takes
 * the argument returns. MANTA_EINVAL, there: bytes at NULL, too many parts, or a
 * reference or handle that is none or was released. */
static inline manta_arg manta_pack(const manta_packed *p)
{
    manta_arg a;

    a.kind = MANTA_KIND_PACKED;
    a.as.packed = p;
    return a;
}

/* Argument i of a call, as manta_arg_bytes() and the others. */
MANTA_API manta_status manta_arg_packed(const manta_task *t, int i, manta_packed *out) MANTA_MUST_USE;

/* The value of an object, as manta_get_bytes() and the others. The references and handles are
 * the object's: to keep one past its release, manta_retain() it, a handle by the reference
 * of its number. */
MANTA_API manta_status manta_get_packed(manta_ref ref, manta_packed *out, int64_t timeout_ms) MANTA_MUST_USE;

/* Makes an object in the store, to be filled in place. Of the head and of each block the size
 * is given; where its address is given too, it is copied, and where that is NULL, the caller
 * writes it. *head (`head` may be NULL) and blocks[0 .. n_blocks) (`blocks` may be NULL when
 * there are none) receive where they lie, writable until manta_seal(). References and handles
 * are held from now on. Fails as manta_create() does. */
MANTA_API manta_status manta_create_packed(const manta_packed *p, void **head, void **blocks,
                                           manta_ref *ref) MANTA_MUST_USE;

/* Makes result i of a call, to be filled in place before the function returns, as
 * manta_create_packed() makes an object. */
MANTA_API manta_status manta_return_packed(manta_task *t, int i, const manta_packed *p, void **head,
                                           void **blocks) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
