/* stop.c - Ctrl-C, and a reader who leaves. */
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/stop.h"

static volatile sig_atomic_t requested, terminated;
static bool unread; /* nobody reads what is printed */

static void on_signal(int number)
{
    bool again = requested && !(number == SIGTERM && terminated);

    terminated = number == SIGTERM;
    if (again) _exit(CLI_INTERRUPTED);
    requested = 1;
}

void stop_install(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction before;

    sigemptyset(&a.sa_mask);
    /* A shell starts background jobs with SIGINT ignored; that stays so. */
    if (!sigaction(SIGINT, NULL, &before) && before.sa_handler != SIG_IGN) sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

bool stop_requested(void)
{
    return requested || unread;
}

bool stop_is_term(void)
{
    return terminated;
}

void stop_unread(void)
{
    unread = true;
}

bool stop_is_unread(void)
{
    return unread && !requested;
}
