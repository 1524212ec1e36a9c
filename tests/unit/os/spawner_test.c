/* spawner_test.c - children: how they come, what they have, how they end, and that nothing
 * is left of them whichever system call fails. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ok.h"
#include "os/descendants.h"
#include "os/fault.h"
#include "os/proc.h"
#include "os/spawner.h"
#include "os/thread.h"

enum { MANY = 200 };

static void exit_with(void *ctx)
{
    _exit(*(const int *)ctx);
}

static void do_nothing(void *ctx)
{
    (void)ctx;
}

static void stay(void *ctx)
{
    (void)ctx;
    for (;;) pause();
}

static int open_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Neither alive nor waiting to be reaped, and of no kind. */
static void assert_no_child(void)
{
    assert_int_equal(waitpid(-1, NULL, __WALL | WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static bool exited_with(int status, int code)
{
    return status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static bool killed_by(int status, int sig)
{
    return status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == sig;
}

/* ---- one child ---- */

static void a_child_ends_as_its_function_says(void **state)
{
    spawn_child c;
    int code = 3;
    (void)state;

    assert_ok(spawn_start(&(spawn_options){.run = exit_with, .ctx = &code}, &c));
    assert_true(c.pid > 0);
    assert_int_equal(spawn_fd(&c), c.pidfd);
    assert_true(exited_with(spawn_wait(&c), 3));
    assert_int_equal(c.pid, 0);
    assert_int_equal(spawn_fd(&c), -1);
    assert_ok(spawn_start(&(spawn_options){.run = do_nothing}, &c));
    assert_true(exited_with(spawn_wait(&c), 0));
    assert_no_child();
}

static void a_pidfd_tells_of_the_end(void **state)
{
    struct pollfd p = {.events = POLLIN};
    spawn_child c;
    (void)state;

    assert_ok(spawn_start(&(spawn_options){.run = stay}, &c));
    p.fd = spawn_fd(&c);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_false(spawn_has_ended(&c));
    spawn_signal(&c, SIGKILL);
    assert_int_equal(poll(&p, 1, -1), 1);
    assert_true(spawn_has_ended(&c));
    assert_true(killed_by(spawn_wait(&c), SIGKILL));
    assert_no_child();
}

/* One that has died before anybody looked is there all the same, until it is reaped. */
static void a_child_that_dies_at_once_is_reaped_once(void **state)
{
    int code = 9;
    (void)state;

    for (int i = 0; i < 50; i++) {
        spawn_child c;
        assert_ok(spawn_start(&(spawn_options){.run = exit_with, .ctx = &code}, &c));
        struct pollfd p = {.fd = spawn_fd(&c), .events = POLLIN};
        assert_int_equal(poll(&p, 1, -1), 1);
        spawn_signal(&c, SIGKILL); /* too late to matter */
        assert_true(exited_with(spawn_end(&c, 0), 9));
        assert_int_equal(spawn_wait(&c), -1);
        assert_int_equal(spawn_end(&c, 0), -1);
    }
    assert_no_child();
}

static void no_child_is_an_answer_everywhere(void **state)
{
    spawn_child none = {0}, *all[2] = {&none, &none};
    (void)state;

    assert_int_equal(spawn_fd(&none), -1);
    assert_false(spawn_has_ended(&none));
    spawn_signal(&none, SIGKILL);
    assert_int_equal(spawn_wait(&none), -1);
    assert_int_equal(spawn_end(&none, CLOCK_NEVER), -1);
    spawn_end_all(all, 2, CLOCK_NEVER);
    spawn_end_all(all, 0, CLOCK_NEVER);
}

/* The program's own wait() was faster. */
static void a_child_that_another_has_reaped_is_gone(void **state)
{
    char text[64];
    spawn_child c;
    int code = 1, before = open_files();
    (void)state;

    assert_ok(spawn_start(&(spawn_options){.run = exit_with, .ctx = &code}, &c));
    assert_int_equal(waitpid(c.pid, NULL, 0), c.pid);
    assert_string_equal(spawn_status_text(spawn_wait(&c), text, sizeof text), "is gone");
    assert_int_equal(open_files(), before);
}

static void ends_have_names(void **state)
{
    char text[64];
    spawn_child c;
    int code = 4;
    (void)state;

    assert_ok(spawn_start(&(spawn_options){.run = stay}, &c));
    assert_non_null(strstr(spawn_status_text(spawn_end(&c, 0), text, sizeof text), "killed by signal 9"));
    assert_ok(spawn_start(&(spawn_options){.run = exit_with, .ctx = &code}, &c));
    assert_string_equal(spawn_status_text(spawn_wait(&c), text, sizeof text), "exited with 4");
    assert_string_equal(spawn_status_text(-1, text, sizeof text), "is gone");
}

/* ---- what it has ---- */

/* What a child finds when its function begins. */
typedef struct found {
    char name[16];
    pid_t session;
    int death_signal;
    bool ignored[NSIG], blocked[NSIG], open[64];
    ino_t standard[3];
} found;

static found *seen; /* in memory that a child shares */

static void look_around(void *ctx)
{
    sigset_t mask;
    struct stat s;
    (void)ctx;

    prctl(PR_GET_NAME, seen->name);
    prctl(PR_GET_PDEATHSIG, &seen->death_signal);
    seen->session = getsid(0);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < NSIG; i++) {
        struct sigaction a;
        seen->ignored[i] = sigaction(i, NULL, &a) == 0 && a.sa_handler == SIG_IGN;
        seen->blocked[i] = sigismember(&mask, i) == 1;
    }
    for (int i = 0; i < 64; i++) seen->open[i] = fcntl(i, F_GETFD) >= 0;
    for (int i = 0; i < 3; i++) seen->standard[i] = fstat(i, &s) ? 0 : s.st_ino;
}

static const found *child_with(spawn_options o)
{
    spawn_child c;

    memset(seen, 0, sizeof *seen);
    o.run = look_around;
    assert_ok(spawn_start(&o, &c));
    assert_true(exited_with(spawn_wait(&c), 0));
    return seen;
}

static int make_seen(void **state)
{
    (void)state;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return seen == MAP_FAILED ? -1 : 0;
}

static void a_child_without_options_is_like_its_parent(void **state)
{
    char name[16];
    const found *f = child_with((spawn_options){.name = NULL});
    (void)state;

    prctl(PR_GET_NAME, name);
    assert_string_equal(f->name, name);
    assert_int_equal(f->session, getsid(0));
    assert_int_equal(f->death_signal, 0);
}

static void a_child_has_a_name_and_a_session(void **state)
{
    const found *f = child_with((spawn_options){.name = "manta-tested", .own_session = true});
    (void)state;

    assert_string_equal(f->name, "manta-tested");
    assert_int_not_equal(f->session, getsid(0));
}

static void signals_are_as_wanted(void **state)
{
    sigset_t all, before;
    const found *f;
    (void)state;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    signal(SIGUSR1, SIG_IGN);
    f = child_with((spawn_options){.signals = SPAWN_SIGNALS_KEPT});
    assert_true(f->blocked[SIGTERM] && f->ignored[SIGUSR1] && !f->ignored[SIGTERM]);
    f = child_with((spawn_options){.signals = SPAWN_SIGNALS_RESET});
    for (int i = 1; i < 32; i++) assert_false(f->blocked[i] || f->ignored[i]);
    f = child_with((spawn_options){.signals = SPAWN_SIGNALS_LEFT});
    for (int i = 1; i < 32; i++) assert_false(f->blocked[i]);
    assert_true(f->ignored[SIGTERM] && f->ignored[SIGINT] && f->ignored[SIGQUIT] && f->ignored[SIGUSR1]);
    signal(SIGUSR1, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void standard_files_are_as_wanted(void **state)
{
    struct stat null, pipe_end, own;
    int p[2];
    const found *f;
    (void)state;

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(stat("/dev/null", &null), 0);
    assert_int_equal(fstat(p[1], &pipe_end), 0);
    assert_int_equal(fstat(2, &own), 0);
    f = child_with((spawn_options){.standard = (int[]){SPAWN_NULL, p[1], SPAWN_PARENTS}});
    assert_true(f->standard[0] == null.st_ino);
    assert_true(f->standard[1] == pipe_end.st_ino);
    assert_true(f->standard[2] == own.st_ino);
    close(p[0]);
    close(p[1]);
}

static int open_nothing(const char *path, int flags, mode_t mode)
{
    (void)path;
    (void)flags;
    (void)mode;
    errno = ENOENT;
    return -1;
}

static void a_child_runs_where_there_is_no_dev_null(void **state)
{
    os_sys table = os_real;
    struct stat own;
    const found *f;
    (void)state;

    assert_int_equal(fstat(0, &own), 0);
    table.open = open_nothing;
    os_use(&table);
    f = child_with((spawn_options){.standard = (int[]){SPAWN_NULL, SPAWN_PARENTS, SPAWN_PARENTS}});
    os_use(NULL);
    assert_true(f->standard[0] == own.st_ino);
}

/* A descriptor that does not exist cannot be its output: it must not write to another. */
static void a_child_without_its_output_does_not_run(void **state)
{
    spawn_child c;
    (void)state;

    memset(seen, 0, sizeof *seen);
    assert_ok(spawn_start(&(spawn_options){.run = look_around, .standard = (int[]){-1, 1000, -1}}, &c));
    assert_true(exited_with(spawn_wait(&c), 1));
    assert_int_equal(seen->session, 0);
}

static void only_kept_files_stay_open(void **state)
{
    int remembered = open("/dev/null", O_RDONLY | O_CLOEXEC), kept, other;
    const found *f;
    (void)state;

    spawn_remember_files();
    kept = open("/dev/null", O_RDONLY | O_CLOEXEC);
    other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(remembered > 2 && kept > 2 && other > 2 && other < 64);
    f = child_with((spawn_options){.closes_files = true, .keep = &kept, .n_keep = 1});
    assert_true(f->open[0] && f->open[1] && f->open[2] && f->open[remembered] && f->open[kept]);
    assert_false(f->open[other]);
    spawn_forget_files();
    f = child_with((spawn_options){.closes_files = true, .keep = &kept, .n_keep = 1});
    assert_true(f->open[kept]);
    assert_false(f->open[other] || f->open[remembered]);
    f = child_with((spawn_options){.closes_files = false});
    assert_true(f->open[other]);
    close(remembered);
    close(kept);
    close(other);
}

/* ---- ends ---- */

static void ignore_term(void *ctx)
{
    const int *ready = ctx;

    signal(SIGTERM, SIG_IGN);
    (void)!write(*ready, "", 1);
    for (;;) pause();
}

static void who_ignores_sigterm_is_killed_at_the_deadline(void **state)
{
    int p[2];
    char byte;
    spawn_child c;
    (void)state;

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_ok(spawn_start(&(spawn_options){.run = ignore_term, .ctx = &p[1]}, &c));
    assert_int_equal(read(p[0], &byte, 1), 1);
    spawn_signal(&c, SIGTERM);
    assert_true(killed_by(spawn_end(&c, clock_deadline(20)), SIGKILL));
    close(p[0]);
    close(p[1]);
    assert_no_child();
}

static void who_obeys_is_not_killed(void **state)
{
    spawn_child c;
    (void)state;

    assert_ok(spawn_start(&(spawn_options){.run = stay, .signals = SPAWN_SIGNALS_RESET}, &c));
    spawn_signal(&c, SIGTERM);
    assert_true(killed_by(spawn_end(&c, CLOCK_NEVER), SIGTERM));
}

/* Half of them end by themselves, half must be killed. */
static void many_children_end_together(void **state)
{
    static spawn_child c[MANY];
    spawn_child *all[MANY];
    int code = 7, before = open_files();
    (void)state;

    for (int i = 0; i < MANY; i++) {
        spawn_options o = {.run = i % 2 ? stay : exit_with, .ctx = &code, .dies_with_parent = true};
        all[i] = &c[i];
        assert_ok(spawn_start(&o, &c[i]));
    }
    for (int i = 0; i < MANY; i += 10) { /* some are reaped one by one */
        assert_true(exited_with(spawn_wait(&c[i]), 7));
    }
    spawn_end_all(all, MANY, clock_deadline(20));
    for (int i = 0; i < MANY; i++) assert_int_equal(c[i].pid, 0);
    assert_int_equal(open_files(), before);
    assert_no_child();
}

static void tell_and_stay(void *ctx)
{
    const int *tell = ctx;
    pid_t self = getpid();

    (void)!write(*tell, &self, sizeof self);
    for (;;) pause();
}

/* The parent of the child under test: starts it, is killed when the child runs. */
static void start_and_die(void *ctx)
{
    const int *tell = ctx;
    int p[2];
    pid_t child;
    spawn_child c;

    if (pipe(p)) _exit(1);
    if (spawn_start(&(spawn_options){.run = tell_and_stay, .ctx = &p[1], .dies_with_parent = true}, &c))
        _exit(1);
    if (read(p[0], &child, sizeof child) != sizeof child || child != c.pid) _exit(1);
    (void)!write(*tell, &child, sizeof child);
    raise(SIGKILL);
}

static bool is_gone(pid_t pid)
{
    return kill(pid, 0) && errno == ESRCH;
}

static void note_nothing(void *ctx, pid_t pid, int status)
{
    (void)ctx;
    (void)pid;
    (void)status;
}

/* We adopt, so the orphan comes to us; it ends by itself, since spawn_reap() would wait for
 * ever for one that does not. */
static void a_child_dies_with_its_parent(void **state)
{
    spawn_child middle;
    pid_t child;
    int p[2];
    (void)state;

    assert_ok(descendants_adopt());
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    for (int i = 0; i < 20; i++) {
        assert_ok(spawn_start(&(spawn_options){.run = start_and_die, .ctx = &p[1]}, &middle));
        assert_int_equal(read(p[0], &child, sizeof child), sizeof child);
        assert_true(killed_by(spawn_wait(&middle), SIGKILL));
        assert_true(killed_by(spawn_reap(child), SIGKILL));
        assert_true(is_gone(child));
    }
    close(p[0]);
    close(p[1]);
    assert_no_child();
}

/* A fork whose child does nothing before its parent is gone: the signal of the parent's
 * death has come and gone when the child asks for it. */
static pid_t late_fork(void)
{
    pid_t parent = getpid(), pid = fork();

    if (!pid)
        while (getppid() == parent) sched_yield();
    return pid;
}

static void start_late_and_die(void *ctx)
{
    static os_sys table;
    const int *tell = ctx;
    spawn_child c;

    table = os_real;
    table.fork = late_fork;
    os_use(&table);
    if (spawn_start(&(spawn_options){.run = stay, .dies_with_parent = true}, &c)) _exit(1);
    (void)!write(*tell, &c.pid, sizeof c.pid);
    raise(SIGKILL);
}

static void a_child_whose_parent_died_before_it_asked_goes_too(void **state)
{
    spawn_child middle;
    pid_t child;
    int p[2];
    (void)state;

    assert_ok(descendants_adopt());
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_ok(spawn_start(&(spawn_options){.run = start_late_and_die, .ctx = &p[1]}, &middle));
    assert_int_equal(read(p[0], &child, sizeof child), sizeof child);
    assert_true(killed_by(spawn_wait(&middle), SIGKILL));
    assert_true(exited_with(spawn_reap(child), 0));
    close(p[0]);
    close(p[1]);
    assert_no_child();
}

/* ---- other kin ---- */

static void a_quiet_child_is_not_seen_by_wait(void **state)
{
    spawn_child c;
    int code = 3;
    (void)state;

    if (proc_threads() > 1) skip(); /* a sanitizer's thread: the fork is not quiet then */
    assert_ok(spawn_start(&(spawn_options){.run = exit_with, .ctx = &code, .kin = SPAWN_QUIET}, &c));
    assert_int_equal(waitpid(-1, NULL, 0), -1);
    assert_int_equal(errno, ECHILD);
    assert_true(exited_with(spawn_wait(&c), 3));
    assert_int_equal(spawn_wait(&c), -1);
}

static void wait_for_lock(void *arg)
{
    mutex *m = arg;

    mutex_lock(m);
    mutex_unlock(m);
}

/* A child of a program with threads is forked by a thread of its own, whose stack it has. */
static void a_program_with_threads_has_such_children_too(void **state)
{
    static const spawn_kin kins[] = {SPAWN_QUIET, SPAWN_DETACHED};
    mutex m;
    thread_id t;
    int p[2], code = 5;
    spawn_child c;
    (void)state;

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    mutex_init(&m);
    mutex_lock(&m);
    assert_ok(thread_start(&t, "test", wait_for_lock, &m));
    for (int i = 0; i < 2; i++) {
        assert_ok(spawn_start(&(spawn_options){.run = exit_with, .ctx = &code, .kin = kins[i]}, &c));
        assert_true((c.pid > 0) == (kins[i] == SPAWN_QUIET));
        assert_true(kins[i] == SPAWN_DETACHED || exited_with(spawn_wait(&c), 5));
    }
    mutex_unlock(&m);
    thread_join(&t);
    mutex_release(&m);
    close(p[0]);
    close(p[1]);
}

/* It is not ours: who adopts has it, and we are told nothing of its end. */
static void a_detached_child_is_not_ours(void **state)
{
    int p[2], fd;
    pid_t pid;
    (void)state;

    assert_ok(descendants_adopt()); /* so that it comes to us, and can be ended */
    assert_ok(descendants_watch(&fd));
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_ok(spawn_start(&(spawn_options){.run = tell_and_stay, .ctx = &p[1], .kin = SPAWN_DETACHED}, NULL));
    assert_int_equal(read(p[0], &pid, sizeof pid), sizeof pid);
    assert_int_not_equal(pid, getpid());
    descendants_end();
    assert_true(is_gone(pid));
    descendants_reap(fd, note_nothing, NULL);
    close(fd);
    close(p[0]);
    close(p[1]);
    assert_no_child();
}

/* ---- failures ---- */

/* Each call of a start fails in turn, in the parent and, since it has a copy of the plan, in
 * the child: nothing is left. */
static void a_start_that_fails_leaves_nothing(void **state)
{
    static const spawn_kin kins[] = {SPAWN_CHILD, SPAWN_QUIET, SPAWN_DETACHED};
    (void)state;

    assert_ok(descendants_adopt());
    for (int k = 0; k < 3; k++) {
        int before = open_files(), failures = 0;
        int64_t live = mem_live();
        for (int n = 1;; n++) {
            spawn_child c = {.pid = -1, .pidfd = -1};
            spawn_options o = {.run = do_nothing, .kin = kins[k], .signals = SPAWN_SIGNALS_RESET};
            fault_begin((fault_plan){.at = n, .err = EAGAIN});
            manta_status st = spawn_start(&o, &c);
            bool was_hit = fault_end() > 0;
            failures += st != MANTA_OK;
            if (st) {
                assert_int_equal(c.pid, 0);
                assert_true(was_hit || kins[k] == SPAWN_DETACHED); /* or it was in the child between */
            } else if (kins[k] != SPAWN_DETACHED) {
                assert_true(exited_with(spawn_wait(&c), 0));
            }
            descendants_end(); /* what is detached */
            assert_int_equal(open_files(), before);
            assert_int_equal(mem_live(), live);
            assert_no_child();
            if (!was_hit && !st) break;
        }
        assert_true(failures >= 1);
    }
}

/* The child is there, and cannot be watched. */
static void a_child_that_cannot_be_watched_is_ended(void **state)
{
    spawn_child c;
    (void)state;

    fault_begin((fault_plan){.at = 2, .err = EMFILE}); /* fork, pidfd_open */
    manta_status st = spawn_start(&(spawn_options){.run = stay}, &c);
    assert_int_equal(fault_end(), 1);
    assert_int_equal(st, MANTA_EIO);
    assert_int_equal(c.pid, 0);
    assert_no_child();
}

static void no_room_for_a_process_is_said(void **state)
{
    spawn_child c;
    (void)state;

    fault_begin((fault_plan){.at = 1, .err = EAGAIN});
    manta_status st = spawn_start(&(spawn_options){.run = stay}, &c);
    fault_end();
    assert_int_equal(st, MANTA_EBUSY);
    assert_error_says("no process can be started");
}

static void interrupted_waits_go_on(void **state)
{
    int code = 6;
    spawn_child c;
    (void)state;

    for (int i = 0; i < 20; i++) {
        fault_begin((fault_plan){.interrupt = true});
        assert_ok(spawn_start(&(spawn_options){.run = exit_with, .ctx = &code}, &c));
        int status = i % 2 ? spawn_wait(&c) : spawn_end(&c, CLOCK_NEVER);
        fault_end();
        assert_true(exited_with(status, 6));
    }
    assert_no_child();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_ends_as_its_function_says),
        cmocka_unit_test(a_pidfd_tells_of_the_end),
        cmocka_unit_test(a_child_that_dies_at_once_is_reaped_once),
        cmocka_unit_test(no_child_is_an_answer_everywhere),
        cmocka_unit_test(a_child_that_another_has_reaped_is_gone),
        cmocka_unit_test(ends_have_names),
        cmocka_unit_test(a_child_without_options_is_like_its_parent),
        cmocka_unit_test(a_child_has_a_name_and_a_session),
        cmocka_unit_test(signals_are_as_wanted),
        cmocka_unit_test(standard_files_are_as_wanted),
        cmocka_unit_test(a_child_runs_where_there_is_no_dev_null),
        cmocka_unit_test(a_child_without_its_output_does_not_run),
        cmocka_unit_test(only_kept_files_stay_open),
        cmocka_unit_test(who_ignores_sigterm_is_killed_at_the_deadline),
        cmocka_unit_test(who_obeys_is_not_killed),
        cmocka_unit_test(many_children_end_together),
        cmocka_unit_test(a_child_dies_with_its_parent),
        cmocka_unit_test(a_child_whose_parent_died_before_it_asked_goes_too),
        cmocka_unit_test(a_quiet_child_is_not_seen_by_wait),
        cmocka_unit_test(a_program_with_threads_has_such_children_too),
        cmocka_unit_test(a_detached_child_is_not_ours),
        cmocka_unit_test(a_start_that_fails_leaves_nothing),
        cmocka_unit_test(a_child_that_cannot_be_watched_is_ended),
        cmocka_unit_test(no_room_for_a_process_is_said),
        cmocka_unit_test(interrupted_waits_go_on),
    };

    return cmocka_run_group_tests(tests, make_seen, NULL);
}
