/* stack.c - where the Python code of a worker is, for `manta stack`.
 *
 *     asker: a file in memory ──▶ `fd`, a signal to the first thread ──▶ waits ──▶ reads the file, null device ──▶ `fd`
 *     first thread, in the handler: faulthandler writes the frames of all threads to `fd`, then on_written()
 *
 * faulthandler needs no lock of the interpreter's: a worker that computes in C and keeps it answers as well. The
 * descriptor is opened in the nursery, and is the null device but while somebody asks. */
#include "py.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 4000 /* of a busy machine; with that of the runtime's frames, less than who asks waits */

static int fd = -1;
static bool answers;
static atomic_bool written;

static int signal_number(void)
{
    return SIGRTMAX - 4; /* the runtime's own, for frames of C, is the one above */
}

static void on_written(int s)
{
    (void)s;
    atomic_store(&written, true);
}

/* stack_prepare(): in a nursery, which has the descriptor for all of its workers. */
PyObject *py_stack_prepare(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    Py_RETURN_NONE;
}

/* stack_begin(): in a worker; (signal, descriptor) for faulthandler, which is to call the handler before it; None: there
 * is nothing to write to. */
PyObject *py_stack_begin(PyObject *self, PyObject *unused)
{
    struct sigaction a = {.sa_handler = on_written, .sa_flags = SA_RESTART};
    (void)self;
    (void)unused;

    if (fd < 0 || sigaction(signal_number(), &a, NULL)) Py_RETURN_NONE;
    answers = true;
    return Py_BuildValue("(ii)", signal_number(), fd);
}

/* Whether the number is still the null device's: the program may have closed it and opened a file. */
static bool is_null_device(void)
{
    struct stat s;

    return fstat(fd, &s) == 0 && S_ISCHR(s.st_mode) && s.st_rdev == makedev(1, 3);
}

static void await_written(void)
{
    atomic_store(&written, false);
    if (pthread_kill((pthread_t)py->main_thread, signal_number())) return;
    for (int i = 0; i < LIMIT_MS && !atomic_load(&written); i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

size_t py_stack(void *user, char *out, size_t size)
{
    ssize_t n = 0;
    (void)user;

    if (!answers || !is_null_device()) return 0;
    int file = memfd_create("manta-frames", MFD_CLOEXEC), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (file >= 0 && null >= 0 && dup3(file, fd, O_CLOEXEC) == fd) {
        await_written();
        (void)dup3(null, fd, O_CLOEXEC);
        n = pread(file, out, size, 0);
    }
    if (file >= 0) (void)close(file);
    if (null >= 0) (void)close(null);
    return n > 0 ? (size_t)n : 0;
}
