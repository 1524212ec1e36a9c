/* manta/code.h - code by key: bytes that many calls need, given to the node once.
 *
 *     const void *at;
 *     static const unsigned char key[MANTA_CODE_KEY] = {0x5a, 0x17};     // random bytes
 *     MANTA_TRY(manta_code_put(key, bytes, n));                          // before the first call
 *     manta_ref r = manta_submit_one("run", NULL, 2, args);              // an argument names the key
 *     MANTA_TRY(manta_code_get(key, &at, &n));                           // in the worker
 *
 * A language whose functions are bytes (a pickle, a script, byte code) puts them once under a
 * key of its own choosing and names the key in its calls. A process that runs such a
 * call fetches the bytes the first time and has them from then on. They belong to the program
 * that put them: every process of it finds them, on a node of its own and on one that was
 * joined, also after the process that put them is dead; no other program does. They are
 * freed when the program is over, with its last detached actor or manta_shutdown().
 *
 * Threads: as manta/task.h. */
#ifndef MANTA_CODE_H
#define MANTA_CODE_H

#include <stddef.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_CODE_KEY 16 /* bytes of a key */

/* Puts n bytes under the MANTA_CODE_KEY bytes at `key`; they are copied. When it returns every
 * process of the program finds them. A key stands for the same bytes for ever: one that is there
 * already stays as it is, and the call does nothing. MANTA_ENOSPC the store is full. */
MANTA_API manta_status manta_code_put(const void *key, const void *bytes, size_t n) MANTA_MUST_USE;

/* Delivers the bytes under `key`: read-only, valid until manta_shutdown(), and in a
 * worker as long as it lives. MANTA_ENOENT nothing was put there; MANTA_EIO the bytes are lost.
 * Waits for nothing but the node's answer, and after the first time not for that either. */
MANTA_API manta_status manta_code_get(const void *key, const void **at, size_t *n) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif

#endif
