/* key.h - the cluster key: who has it belongs to the cluster.
 *
 * 32 random bytes, kept as 64 hexadecimal digits and a newline in a file that
 * only its owner can read. On one host the file is found, and made on first
 * use, without anybody being asked; for several hosts it is copied by whoever
 * sets them up, and given. */
#ifndef NET_KEY_H
#define NET_KEY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { KEY_SIZE = 32 };

typedef struct cluster_key {
    unsigned char bytes[KEY_SIZE];
    bool given; /* explicitly, so it may serve beyond this host */
} cluster_key;

/* Reads a key file. MANTA_EPERM: others than the owner can read it, or the
 * owner is neither we nor root; MANTA_ECORRUPT: it does not hold a key. */
manta_status key_read(const char *path, cluster_key *out) MANTA_MUST_USE;

/* The key of `path`; for NULL the file named by MANTA_CLUSTER_KEY, and without
 * that this user's own key, which is made when there is none. */
manta_status key_find(const char *path, cluster_key *out) MANTA_MUST_USE;

/* Where this user's own key is: $XDG_CONFIG_HOME/manta/cluster.key, or the same
 * under ~/.config. MANTA_ENOENT: neither is known. */
manta_status key_path(char *out, size_t size) MANTA_MUST_USE;

/* Makes a key at `path`, folders included, unless there is one: of several
 * processes that do so at once one wins, and all read the same bytes. */
manta_status key_make(const char *path) MANTA_MUST_USE;

/* Makes a new key at `path`, in a folder that is there, and reads it back: what is there from
 * then on is a key that key_read() takes. MANTA_EEXIST something has that name already, and stays as it
 * was; MANTA_EPERM the file system lets others read what this user makes there. */
manta_status key_make_new(const char *path) MANTA_MUST_USE;

void key_wipe(cluster_key *k); /* leaves no trace in memory */

/* Memory for a key that is kept: in no core dump, and not written to swap where that may be had.
 * A copy of *k, or of nothing for NULL. *out: owned, key_drop(). MANTA_ENOMEM. A child of fork has it too. */
manta_status key_hold(const cluster_key *k, cluster_key **out) MANTA_MUST_USE;
void key_drop(cluster_key *k); /* wipes and gives back; accepts NULL */

#endif
