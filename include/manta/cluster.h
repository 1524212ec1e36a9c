/* manta/cluster.h - processes of several hosts that train together.
 *
 * The same program is started once per worker, each with its own TF_CONFIG in
 * the environment, as TensorFlow's multi-worker training is:
 *
 *     manta_cluster *c;
 *     manta_session *s;
 *     MANTA_TRY(manta_cluster_open(NULL, &c));                // NULL without TF_CONFIG: train alone
 *     manta_session_options o = {.cluster = c};
 *     MANTA_TRY(manta_session_open(model, &compile, &o, &s));
 *     MANTA_TRY(manta_fit(s, data, &fit, NULL));              // waits for the others, then trains
 *     if (manta_cluster_is_chief(c)) MANTA_TRY(manta_session_save(s, "model.keras"));
 *
 * The order in which they start does not matter. A process that is lost is
 * waited for and named; started again, it receives the state from the others'
 * memory and all go on from the step that was under way. The result is, byte
 * for byte, that of one process with the same number of shards
 * (docs/distributed.md).
 *
 * Connections are mutually authenticated and encrypted with a cluster key: on
 * one host a file that is found, and made on first use, by itself; between
 * hosts the same file, given by name. manta_cluster_key_make() makes one for a
 * run of its own.
 *
 * A launcher that hands out ports may hold them: it listens itself, lets the
 * process inherit the socket and puts its descriptor into MANTA_LISTEN_FD.
 *
 * Threads: a cluster is used by one thread at a time. */
#ifndef MANTA_CLUSTER_H
#define MANTA_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/option.h>
#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_cluster manta_cluster;

typedef struct manta_cluster_options {
    const char *tf_config; /* instead of the environment's TF_CONFIG */
    const char *key_file; /* NULL: the one that MANTA_CLUSTER_KEY names, or this user's own */
    bool insecure_bulk; /* gradients and weights go unencrypted, after an authenticated handshake */
    int64_t timeout_ms; /* how long to wait for those that are missing or silent; 0: 10 minutes;
                           MANTA_NONE: for ever */
} manta_cluster_options;

/* Makes a new key in the file `path`, which only this user can read, for manta_cluster_options.key_file.
 * Nothing is ever replaced. MANTA_EEXIST: something has that name; MANTA_ENOENT: there is no such
 * folder; MANTA_EPERM: others could read it there. */
MANTA_API manta_status manta_cluster_key_make(const char *path) MANTA_MUST_USE;

/* Reads TF_CONFIG and begins to listen. *out: owned, NULL when TF_CONFIG is not
 * set or names nobody. options may be NULL. MANTA_EINVAL: TF_CONFIG is wrong;
 * MANTA_EPERM: other hosts could connect and no key was given. */
MANTA_API manta_status manta_cluster_open(const manta_cluster_options *options,
                                          manta_cluster **out) MANTA_MUST_USE;
MANTA_API void manta_cluster_close(manta_cluster *c); /* after its sessions; accepts NULL */

/* Of NULL: 0, 1, true, "worker" and 0. */
MANTA_API int manta_cluster_rank(const manta_cluster *c); /* -1: an evaluator, a parameter server */
MANTA_API int manta_cluster_size(const manta_cluster *c); /* how many train: chief and workers */
MANTA_API bool manta_cluster_is_chief(const manta_cluster *c); /* who saves, and speaks for all */
MANTA_API const char *manta_cluster_task_type(const manta_cluster *c);
MANTA_API int manta_cluster_task_index(const manta_cluster *c);

#ifdef __cplusplus
}
#endif
#endif
