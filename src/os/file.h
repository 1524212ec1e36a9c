/* file.h - files read whole, and files replaced so that a reader, or a machine
 * that lost power, finds the old contents or the new and nothing between.
 *
 * Every failure names the path and what the system said. Interrupted calls are
 * taken up again, short reads and writes completed. Every descriptor is
 * close-on-exec. */
#ifndef OS_FILE_H
#define OS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"

/* Reads the file at `path` whole, if it has at most max_size bytes.
 * *out: owned, give back with mem_try_free(); one byte 0 follows the *size
 * bytes, so that text can be used as a C string. Both untouched on failure.
 * MANTA_ENOENT, MANTA_EPERM, MANTA_EIO; MANTA_EINVAL larger than max_size, or a device,
 * which may have no end; MANTA_ENOMEM. */
manta_status file_read(const char *path, size_t max_size, void **out, size_t *size) MANTA_MUST_USE;

/* Reads the text of a small file, as those of /proc are, into memory of the
 * caller: allocates nothing. The text is terminated; MANTA_EINVAL when it does
 * not fit. *text is undefined on failure. */
manta_status file_read_text(const char *path, char *text, size_t size) MANTA_MUST_USE;

/* Replaces the contents of `path`, or creates it. When this returns MANTA_OK
 * the new contents are on the disk under that name. On failure the old
 * contents are whole, and no temporary file is left. MANTA_EUNKNOWN is the
 * exception: the name already shows the new contents, but the system could not
 * say that this is on the disk.
 * An existing file's permission bits are kept; a symbolic link is replaced,
 * not followed. */
manta_status file_replace(const char *path, const void *data, size_t size) MANTA_MUST_USE;

/* A file_writer replaces a file as file_replace() does, piece by piece:
 *
 *     if ((st = file_writer_open(path, &w))) goto out;
 *     if ((st = file_writer_write(w, head, sizeof head))) goto out;
 *     ...
 *     st = file_writer_commit(w);
 * out:
 *     file_writer_free(w);
 *
 * Until commit everything goes to a temporary name in the same folder. Writes
 * are gathered in a buffer. */
typedef struct file_writer file_writer;

/* *out: owned, give back with file_writer_free(). Untouched on failure. */
manta_status file_writer_open(const char *path, file_writer **out) MANTA_MUST_USE;

/* Reserves disk space for `size` bytes in all, so that a full disk is known
 * before the work is done. Optional; a file system that cannot is no failure. */
manta_status file_writer_reserve(file_writer *w, uint64_t size) MANTA_MUST_USE;

/* Adds n bytes at the end. After a failure only file_writer_free() is of use. */
manta_status file_writer_write(file_writer *w, const void *data, size_t n) MANTA_MUST_USE;

/* Makes what was written the contents of the path; see file_replace(). */
manta_status file_writer_commit(file_writer *w) MANTA_MUST_USE;

/* A writer whose bytes go elsewhere: the same buffer and sum, but no file. What
 * write() gets in pieces counts from commit() on; free() comes last, also
 * without a commit, and cannot fail. */
typedef struct file_sink {
    manta_status (*reserve)(void *self, uint64_t size); /* optional */
    manta_status (*write)(void *self, const void *data, size_t n);
    manta_status (*commit)(void *self);
    void (*free)(void *self);
} file_sink;

/* Opens a writer whose bytes go to `sink`. Takes `self`, on failure too. Sentences call
 * the file `path`. */
manta_status file_writer_to(const char *path, const file_sink *sink, void *self,
                            file_writer **out) MANTA_MUST_USE;

/* How many bytes were written so far, and their crc32c. */
typedef struct file_sum {
    uint64_t size;
    uint32_t crc;
} file_sum;
file_sum file_writer_sum(const file_writer *w);

/* Gives back w; what was not committed is gone. Accepts NULL. Cannot fail. */
void file_writer_free(file_writer *w);

/* Creates the folder at `path` and those above it, where they are missing. */
manta_status file_mkdirs(const char *path) MANTA_MUST_USE;
/* Creates them likewise; the folder at `path` itself, where it is created here, is for this user alone
 * (0700). One that is there stays as it is. */
manta_status file_mkdirs_own(const char *path) MANTA_MUST_USE;

/* The names in a folder, "." and ".." left out, in the order of their bytes.
 * Initialise with {0}; give back with file_names_release(). */
typedef VEC(char *) file_names;

/* Adds the names in the folder at `path` to *out, which is unchanged on failure. */
manta_status file_list(const char *path, file_names *out) MANTA_MUST_USE;
void file_names_release(file_names *names);

/* What lies at a path: links are followed. */
typedef struct file_info {
    uint64_t size;
    bool is_folder, is_file;
    int64_t changed_ns; /* last change of the contents, since 1970 */
} file_info;

/* Describes what is at `path`; a symbolic link is followed. MANTA_ENOENT when there is
 * nothing. */
manta_status file_stat(const char *path, file_info *out) MANTA_MUST_USE;
/* Describes what is at `path` and follows no link: a link is neither file nor folder. */
manta_status file_look(const char *path, file_info *out) MANTA_MUST_USE;

/* Gives the file at `from` the second name `to`; MANTA_EEXIST when that is
 * taken. Not every file system can. */
manta_status file_link(const char *from, const char *to) MANTA_MUST_USE;

/* Removes a file. MANTA_ENOENT when there is none. */
manta_status file_remove(const char *path) MANTA_MUST_USE;

/* Removes a folder and all below it; links are removed, not followed.
 * MANTA_ENOENT when there is none. */
manta_status file_remove_tree(const char *path) MANTA_MUST_USE;

/* The folder that a path lies in: "a" of "a/b", "." of "b", "/" of "/b". Owned: mem_free(). */
char *file_above(const char *path);

/* Renames within a file system: one step, and not yet on the disk. */
manta_status file_rename(const char *from, const char *to) MANTA_MUST_USE;

/* Copies a file piece by piece; `to` is replaced as file_replace() does it. */
manta_status file_copy(const char *from, const char *to) MANTA_MUST_USE;

/* Brings the names in a folder to disk. A file system that cannot is no failure. */
manta_status file_sync_folder(const char *path) MANTA_MUST_USE;

/* Brings what a file holds to disk; a link is no file. Of a folder: everything below
 * it, names too. MANTA_EINVAL something is neither file nor folder. */
manta_status file_sync(const char *path) MANTA_MUST_USE;
manta_status file_sync_tree(const char *path) MANTA_MUST_USE;

/* The size and crc32c of a file, read piece by piece. */
manta_status file_sum_of(const char *path, file_sum *out) MANTA_MUST_USE;

/* manta_fail() with "<doing> <path>: <strerror(err)>" and the status that fits
 * an errno: ENOENT, EEXIST, EACCES and EPERM, ENOSPC and EDQUOT, ENOMEM,
 * EBUSY; MANTA_EIO for all others. */
manta_status file_fail(int err, const char *doing, const char *path);

#endif
