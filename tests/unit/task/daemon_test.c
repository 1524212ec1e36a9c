/* daemon_test.c - the daemon's judgement of workers that end before they have started:
 * of themselves, or because it has ended them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/log.h>

#include "base/mem.h"
#include "os/proc.h"
#include "os/spawn.h"
#include "task/daemon.h"

enum { MANY = 30, JOB = 1 };

/* A node whose zygote nobody answers for: workers come from the test. */
static node *node_without_zygote(void)
{
    node *d = mem_new(sizeof *d);
    d->config.store_limit = 1 << 20;
    d->config.total.amount[0] = 2 * SCHED_UNIT;
    d->door_fd = d->self_pidfd = d->keeper_pidfd = -1;
    d->in = mem_new(SOCKET_MAX_MESSAGE);
    d->sched = sched_new(d->config.total, 1);
    d->refs = refs_new();
    d->objects = directory_new();
    if (loop_new(&d->loop) || daemon_memory_init(d)) abort();
    job *j = mem_new(sizeof *j);
    *j = (job){.id = JOB, .zygote_fd = -1, .zygote_pidfd = -1, .steward_fd = -1};
    *map_u64_put(&d->jobs, JOB) = j;
    return d;
}

/* A worker that waits for its end, or has ended, before it says anything; its number. */
static uint32_t add_worker(node *d, bool ends)
{
    int pair[2], pidfd;
    pid_t pid;
    if (socket_pair(pair) || spawn_fork(&pid)) abort();
    if (pid == 0) {
        while (!ends) pause();
        _exit(1);
    }
    if (proc_pidfd_open(pid, &pidfd)) abort();
    close(pair[1]);
    daemon_add_worker(d, JOB, pid, (int[]){pair[0], pidfd}, 2);
    return d->next_client;
}

static void until_buried(node *d, uint32_t id)
{
    client *c = daemon_client(d, id);
    int status = spawn_wait(c->pid);
    while (!c->dying)
        if (loop_run(d->loop, 1000)) abort();
    c->status = status;
    (void)daemon_bury(d);
}

/* Runs in a process of its own: a daemon never gives back what it has. Whether the
 * node wants to end after many workers. */
static bool node_ends(bool of_themselves)
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        manta_log_set_level(MANTA_LOG_OFF);
        node *d = node_without_zygote();
        for (int i = 0; i < MANY && !d->stop; i++) {
            uint32_t id = add_worker(d, of_themselves);
            if (!of_themselves) daemon_kill(d, id);
            until_buried(d, id);
        }
        _exit(d->stop);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void workers_that_cannot_start_end_the_node(void **state)
{
    (void)state;
    assert_true(node_ends(true));
}

static void workers_that_were_killed_do_not(void **state)
{
    (void)state;
    assert_false(node_ends(false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_that_cannot_start_end_the_node),
        cmocka_unit_test(workers_that_were_killed_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
