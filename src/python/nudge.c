/* nudge.c - a call that is cancelled as it goes to sleep wakes up.
 *
 * The first thread hears of a cancel by SIGINT, which ends the system call that it waits in. A signal that comes
 * a moment earlier ends nothing:
 *
 *     the interpreter looks for signals   gives its lock away     select(3600 s)
 *     ───────────────┬────────────────────────────────────▲───────────┬──────────────▶
 *                    └─ the last time, until it returns   │           └─ sleeps on: nobody tells it again
 *                                                      SIGINT
 *
 * So the thread is signalled again and again by a timer. The signal does nothing besides ending system calls; the
 * interpreter then looks, finds the SIGINT, and raises. After that, or when the call ends, the timer is stopped: what
 * the program does about the interrupt may be done by libraries that do not go on with system calls which a signal
 * ends. The interpreter looks at pending calls after it has looked for signals, so one of them stops the timer.
 *
 * All here is of the thread that holds the interpreter's lock. */
#include "py.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id /* glibc before 2.38 has the field without the name */
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define FIRST_NS  1000000 /* after the cancel: most calls went to sleep by then */
#define PERIOD_NS 20000000

static timer_t timer;
static int timer_pid; /* whose the timer is: a fork has none of its parent's */

static int signal_number(void)
{
    return SIGRTMAX - 5;
}

static void do_nothing(int sig)
{
    (void)sig;
}

static bool make_timer(void)
{
    struct sigevent to = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal_number()};

    if (timer_pid == py->pid) return true;
    to.sigev_notify_thread_id = py->main_tid;
    if (timer_create(CLOCK_MONOTONIC, &to, &timer)) return false;
    timer_pid = py->pid;
    return true;
}

/* A pending call: runs on the first thread. The system call that stops the timer lets a SIGINT through which has been
 * sent and was not delivered; the interpreter may not have seen that one yet. */
static int stop_nudging(void *unused)
{
    (void)unused;
    py_nudge_end();
    return PyErr_CheckSignals();
}

void py_nudge_begin(void)
{
    struct itimerspec when = {.it_value.tv_nsec = FIRST_NS, .it_interval.tv_nsec = PERIOD_NS};
    struct sigaction act = {.sa_handler = do_nothing}; /* without SA_RESTART */

    (void)sigemptyset(&act.sa_mask);
    /* Each time: the program may have taken all signals back, and this one would end the process then. */
    if (sigaction(signal_number(), &act, NULL) || !make_timer() || timer_settime(timer, 0, &when, NULL))
        return;
    (void)Py_AddPendingCall(stop_nudging, NULL); /* where too many are pending the call's end stops it */
}

void py_nudge_end(void)
{
    struct itimerspec never = {{0}, {0}};

    if (timer_pid == py->pid) (void)timer_settime(timer, 0, &never, NULL);
}
