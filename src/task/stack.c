/* stack.c - see stack.h. */
#include "task/stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "os/sys.h"

#define MOST_FRAMES 64
#define LIMIT_MS    4000
#define OWN_FRAMES  2 /* the handler, and the kernel's way into it */

static void *frames[MOST_FRAMES];
static _Atomic int n_frames; /* -1: asked; 0: nobody asks */

static int signal_number(void)
{
    return SIGRTMAX - 3;
}

static void on_signal(int sig)
{
    int err = errno;
    (void)sig;

    if (atomic_load(&n_frames) < 0) atomic_store(&n_frames, backtrace(frames, MOST_FRAMES));
    errno = err;
}

void stack_prepare(void)
{
    void *one[1];

    (void)backtrace(one, 1);
}

void stack_install(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    sigemptyset(&a.sa_mask);
    sigaction(signal_number(), &a, NULL);
}

static void add_frame(buf *out, int i, const void *at)
{
    Dl_info info;

    memset(&info, 0, sizeof info);
    buf_printf(out, "#%-2d ", i);
    if (!dladdr(at, &info) || !info.dli_fname) {
        buf_printf(out, "%p\n", at);
        return;
    }
    const char *file = strrchr(info.dli_fname, '/');
    file = file ? file + 1 : info.dli_fname;
    if (info.dli_sname)
        buf_printf(out, "%s+0x%zx (%s)\n", info.dli_sname,
                   (size_t)((uintptr_t)at - (uintptr_t)info.dli_saddr), file);
    else
        buf_printf(out, "%s+0x%zx\n", file, (size_t)((uintptr_t)at - (uintptr_t)info.dli_fbase));
}

manta_status stack_take(pthread_t thread, buf *out)
{
    int n = -1;

    atomic_store(&n_frames, -1);
    if (pthread_kill(thread, signal_number()))
        return manta_fail(MANTA_ENOENT, "the stack cannot be taken: the thread has ended");
    for (int i = 0; i < LIMIT_MS && (n = atomic_load(&n_frames)) < 0; i++) (void)os->poll(NULL, 0, 1);
    atomic_store(&n_frames, 0);
    if (n < 0) return manta_fail(MANTA_ETIMEDOUT, "the process does not answer its signals");
    for (int i = OWN_FRAMES; i < n; i++) add_frame(out, i - OWN_FRAMES, frames[i]);
    return MANTA_OK;
}
