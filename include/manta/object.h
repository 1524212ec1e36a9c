/* manta/object.h - objects: values that processes share by reference.
 *
 *     manta_ref table = manta_put(manta_elements(&array));
 *     manta_ref total = manta_remote(sum, table);
 *     if (manta_get_f64(total, &v, MANTA_FOREVER)) fprintf(stderr, "%s\n", manta_error_text());
 *     manta_release(total);
 *     manta_release(table);
 *
 * References are counted. What manta_put(), manta_create(), manta_promise() and manta_remote()
 * return is held once and given back with manta_release(). What a manta_get
 * delivers by pointer is read-only, lies in shared memory or in this process,
 * and is valid until the reference is released.
 *
 * Threads: any thread of the program. */
#ifndef MANTA_OBJECT_H
#define MANTA_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/array.h>
#include <manta/status.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a value an object. Latches errors like manta_remote(). */
MANTA_API manta_ref manta_put(manta_arg value);

/* An object to be filled in place: *out is writable until manta_seal(), after
 * which it is as if put. MANTA_ENOSPC the store is full. */
MANTA_API manta_status manta_create(manta_dtype dtype, int ndim, const int64_t *shape, manta_array *out,
                                    manta_ref *ref) MANTA_MUST_USE;
MANTA_API manta_status manta_seal(manta_ref ref) MANTA_MUST_USE;

/* A reference to a value that this process gives later: it can be passed on, waited for and released as any
 * other. It ends with this process (MANTA_FAILURE_LOST) if it is not settled before. Latches errors like
 * manta_remote(). */
MANTA_API manta_ref manta_promise(void);
/* The promise becomes what `as` is: a copy of its value, or its failure. MANTA_EINVAL it is no promise, or
 * was settled; MANTA_ETIMEDOUT `as` is not there yet; MANTA_ENOSPC the store is full: it stays a promise. */
MANTA_API manta_status manta_promise_settle(manta_ref promise, manta_ref as) MANTA_MUST_USE;
/* The promise fails. MANTA_EINVAL it is no promise, or was settled. */
MANTA_API manta_status manta_promise_break(manta_ref promise, manta_status code,
                                           const char *text) MANTA_MUST_USE;

/* Waits for the object at most timeout_ms (0: not at all). MANTA_OK it is
 * there; MANTA_ETIMEDOUT; else the failure of the call that was to make it. */
MANTA_API manta_status manta_get(manta_ref ref, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_f64(manta_ref ref, double *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_i64(manta_ref ref, int64_t *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_bool(manta_ref ref, bool *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_str(manta_ref ref, const char **out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_bytes(manta_ref ref, const void **at, size_t *n,
                                       int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_array(manta_ref ref, manta_array *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_get_refs(manta_ref ref, const manta_ref **out, size_t *n,
                                      int64_t timeout_ms) MANTA_MUST_USE;
/* The value of an object of any kind: out->kind says which, and `as` has it, as the function of
 * manta_f64() .. manta_handle() that makes such an argument would; of an array *array is the
 * view, to which out->as.array points. Of a packed value only the kind is told, which
 * manta_get_packed() reads. Pointers are valid as those of the other functions. */
MANTA_API manta_status manta_get_value(manta_ref ref, manta_arg *out, manta_array *array,
                                       int64_t timeout_ms) MANTA_MUST_USE;
/* Copies the array into memory of the caller's own, which may be written to and is
 * given back with free(). The object itself stays as it is, and free to leave
 * memory. Fails as manta_get_array() does; MANTA_ENOMEM no memory for the copy. */
MANTA_API manta_status manta_get_copy(manta_ref ref, manta_array *out, int64_t timeout_ms) MANTA_MUST_USE;
/* Waits for all; the first failure in the order given is returned as soon as
 * it is known. */
MANTA_API manta_status manta_get_all(const manta_ref *refs, size_t n, int64_t timeout_ms) MANTA_MUST_USE;

/* Waits until num_returns of the n references are ready (there, or failed) or
 * the time is over. ready[i] says which, for at most num_returns of them, the
 * first in order; *n_ready (may be NULL) how many. That the time is over is no
 * failure: the status is MANTA_OK, and *n_ready less than num_returns. MANTA_EINVAL
 * a reference that is none, or is given twice. */
MANTA_API manta_status manta_wait(const manta_ref *refs, size_t n, size_t num_returns, int64_t timeout_ms,
                                  bool *ready, size_t *n_ready) MANTA_MUST_USE;

/* When the store's memory is full, objects that nobody reads are written to
 * disk and brought back by the next manta_get; putting and getting wait for
 * that. An object is read from the manta_get that delivers a pointer to it
 * until the reference is released, and during calls that have it as an
 * argument. When what is in the way is in use elsewhere, a put waits up to five
 * seconds for it; when it is in use by the process itself, or cannot be
 * written, the put fails at once with MANTA_ENOSPC (MANTA_FAILURE_FULL).
 *
 * manta_pin() brings an object that is there into memory, where it stays, at
 * the same address, until as many manta_unpin() or the last release in this
 * process. MANTA_ETIMEDOUT it is not there yet. */
MANTA_API manta_status manta_pin(manta_ref ref) MANTA_MUST_USE;
MANTA_API void manta_unpin(manta_ref ref);
/* Gives back the pointers to the object that manta_get_...() has delivered to this process so far: unless it is
 * pinned, it is not read any more, and free to leave memory. Accepts what is no reference. */
MANTA_API void manta_unread(manta_ref ref);

/* One holder more, one holder less. The last release in the whole node gives
 * the memory back. */
MANTA_API manta_status manta_retain(manta_ref ref) MANTA_MUST_USE;
MANTA_API void manta_release(manta_ref ref); /* accepts no reference */
MANTA_API void manta_release_all(const manta_ref *refs, size_t n);

#ifdef __cplusplus
}
#endif
#endif
