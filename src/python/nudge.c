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
 * So the thread is signalled again and again by a timer, until the call ends. The signal does nothing besides
 * ending system calls; the interpreter then looks, finds the SIGINT, and raises. All here is of the thread that
 * holds the interpreter's lock. */
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
    struct sigaction act = {.sa_handler = do_nothing}; /* without SA_RESTART */
    struct sigevent to = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal_number()};

    if (timer_pid == py->pid) return true;
    to.sigev_notify_thread_id = py->main_tid;
    (void)sigemptyset(&act.sa_mask);
    if (sigaction(signal_number(), &act, NULL) || timer_create(CLOCK_MONOTONIC, &to, &timer)) return false;
    timer_pid = py->pid;
    return true;
}

void py_nudge_begin(void)
{
    struct itimerspec when = {.it_value.tv_nsec = FIRST_NS, .it_interval.tv_nsec = PERIOD_NS};

    if (make_timer()) (void)timer_settime(timer, 0, &when, NULL);
}

void py_nudge_end(void)
{
    struct itimerspec never = {{0}, {0}};

    if (timer_pid == py->pid) (void)timer_settime(timer, 0, &never, NULL);
}
