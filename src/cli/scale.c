/* scale.c - more and fewer workers while a training runs. */
#include "cli/scale.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_int wish; /* lock-free, so that a handler may change it */

static void on_signal(int number)
{
    atomic_fetch_add(&wish, number == SIGUSR1 ? 1 : -1);
}

void scale_install(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    sigemptyset(&a.sa_mask);
    sigaction(SIGUSR1, &a, NULL);
    sigaction(SIGUSR2, &a, NULL);
}

int scale_take(void)
{
    return atomic_exchange(&wish, 0);
}
