/* lock.c - one process at a time in a folder.
 *
 * POSIX record locks are not inherited by fork(), which is what is wanted
 * here, but a process may take one twice and loses it with the first close.
 * So the files that this process holds are kept in a list. */
#include "train/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/file.h"
#include "os/sys.h"
#include "os/thread.h"

struct lock {
    int fd;
    dev_t device;
    ino_t file;
    lock *next;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static lock *held; /* guard */

static manta_status busy(const char *path, pid_t pid)
{
    return manta_fail(MANTA_EBUSY, "%s: process %ld is at work there", path, (long)pid);
}

/* Puts l into the list unless this process has the file already. */
static bool note(lock *l, const struct stat *info)
{
    bool mine = false;

    l->device = info->st_dev;
    l->file = info->st_ino;
    pthread_mutex_lock(&guard);
    for (const lock *o = held; o; o = o->next) mine |= o->device == l->device && o->file == l->file;
    if (!mine) {
        l->next = held;
        held = l;
    }
    pthread_mutex_unlock(&guard);
    return !mine;
}

static void forget(lock *l)
{
    pthread_mutex_lock(&guard);
    for (lock **p = &held; *p; p = &(*p)->next) {
        if (*p != l) continue;
        *p = l->next;
        break;
    }
    pthread_mutex_unlock(&guard);
}

manta_status lock_take(const char *path, lock **out)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat info;
    lock *l;

    /* Whether it is ours is asked before it is opened: closing the second
     * descriptor would give the lock up. */
    if (!os->stat(path, &info)) {
        lock probe = {0};
        if (!note(&probe, &info)) return busy(path, getpid());
        forget(&probe);
    }
    l = mem_new(sizeof *l);
    do l->fd = os->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    while (l->fd < 0 && errno == EINTR);
    if (l->fd < 0) {
        manta_status st = file_fail(errno, "opening", path);
        mem_free(l);
        return st;
    }
    if (fcntl(l->fd, F_SETLK, &whole)) {
        int err = errno;
        manta_status st =
            err == EACCES || err == EAGAIN ? busy(path, lock_holder(path)) : file_fail(err, "locking", path);
        os->close(l->fd);
        mem_free(l);
        return st;
    }
    if (os->fstat(l->fd, &info) || !note(l, &info)) {
        os->close(l->fd);
        mem_free(l);
        return busy(path, getpid());
    }
    *out = l;
    return MANTA_OK;
}

void lock_release(lock *l)
{
    if (!l) return;
    forget(l);
    os->close(l->fd);
    mem_free(l);
}

pid_t lock_holder(const char *path)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat info;
    lock probe = {0};
    int fd;

    if (os->stat(path, &info)) return 0;
    if (!note(&probe, &info)) return getpid();
    forget(&probe);
    if ((fd = os->open(path, O_RDWR | O_CLOEXEC, 0)) < 0) return 0;
    if (fcntl(fd, F_GETLK, &whole) || whole.l_type == F_UNLCK) whole.l_pid = 0;
    os->close(fd);
    return whole.l_pid;
}
