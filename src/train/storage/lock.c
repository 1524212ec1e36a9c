/* lock.c - one process at a time in a folder.
 *
 * POSIX record locks are not inherited by fork(), which is what is wanted
 * here, but a process may take one twice and loses it with the first close of
 * any descriptor of the file. So the files that this process holds are kept in a
 * list, and `guard` is held from the look into it until what was opened is closed
 * again, or is in the list. */
#include "train/storage/lock.h"

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
    pid_t owner; /* a fork of it has the list, and no lock */
    int fd;
    dev_t device;
    ino_t file;
    lock *next;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static lock *held; /* guard */

static manta_status fail_busy(const char *path, pid_t pid)
{
    return manta_fail(MANTA_EBUSY, "%s is in use by process %ld: wait for its end, or choose another folder",
                      path, (long)pid);
}

/* Whether this process has the file. Under guard. */
static bool is_ours(const struct stat *info)
{
    for (const lock *o = held; o; o = o->next) {
        if (o->owner == getpid() && o->device == info->st_dev && o->file == info->st_ino) return true;
    }
    return false;
}

/* Under guard. */
static pid_t find_holder(const char *path)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat info;
    int fd;

    if (os->stat(path, &info)) return 0;
    if (is_ours(&info)) return getpid();
    do fd = os->open(path, O_RDWR | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return 0;
    if (fcntl(fd, F_GETLK, &whole) || whole.l_type == F_UNLCK) whole.l_pid = 0;
    os->close(fd);
    return whole.l_pid;
}

pid_t lock_holder(const char *path)
{
    pid_t pid;

    pthread_mutex_lock(&guard);
    pid = find_holder(path);
    pthread_mutex_unlock(&guard);
    return pid;
}

/* Opens and locks the file. Under guard; *fd is the caller's also on failure. */
static manta_status take_file(const char *path, int *fd, struct stat *info)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (!os->stat(path, info) && is_ours(info)) return fail_busy(path, getpid());
    do *fd = os->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return file_fail(errno, "opening", path);
    if (fcntl(*fd, F_SETLK, &whole))
        return errno == EACCES || errno == EAGAIN ? fail_busy(path, find_holder(path))
                                                  : file_fail(errno, "locking", path);
    return os->fstat(*fd, info) ? file_fail(errno, "looking at", path) : MANTA_OK;
}

manta_status lock_take(const char *path, lock **out)
{
    struct stat info;
    int fd = -1;
    manta_status st;

    pthread_mutex_lock(&guard);
    st = take_file(path, &fd, &info);
    if (!st) {
        *out = mem_new(sizeof **out);
        **out = (lock){getpid(), fd, info.st_dev, info.st_ino, held};
        held = *out;
    } else if (fd >= 0) {
        os->close(fd);
    }
    pthread_mutex_unlock(&guard);
    return st;
}

void lock_release(lock *l)
{
    if (!l) return;
    pthread_mutex_lock(&guard);
    for (lock **p = &held; *p; p = &(*p)->next) {
        if (*p != l) continue;
        *p = l->next;
        break;
    }
    os->close(l->fd);
    pthread_mutex_unlock(&guard);
    mem_free(l);
}
