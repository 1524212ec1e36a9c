/* forked.c - the first things that a forked process does. */
#include "train/session/forked.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "os/sys.h"

void forked_begin(pid_t parent, int rank)
{
    os->prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0); /* before the signal was asked for */
    manta_error_origin(NULL, rank);
}

void forked_leave_signals(void)
{
    sigset_t none;

    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void forked_take(manta_session *s)
{
    s->pool = NULL;
    s->e = NULL;
    s->lockstep = NULL;
}
