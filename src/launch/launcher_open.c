/* launcher_open.c - from options to hosts, ranks and commands; and what is held until the end.
 * launcher.h has the picture of a launch.
 *
 *     check_options()   what cannot be, before anything is begun
 *     find_hosts()      of a file, of Slurm's allocation, of a pod's name; or this host. Without an
 *                       allocation salloc is started, and held by a pipe: it gives the nodes back when
 *                       that closes, also when we are killed
 *     place_ranks()     ranks are numbered host by host, in the order of the list
 *     check_size()      what is sent to an agent must fit into one message
 *     name_job()        a name that no other launch has; ports come of it
 *
 * With `allocate` false nothing is begun and no signal is taken over: that is the plan of
 * manta_launch_plan(), which prints the commands that a launch would run.
 *
 * Descriptors 0 to 2 are open from here on, so that no pipe of ours gets such a number; and standard
 * output and error have one sink when they are one file, so that lines are not torn. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "launch/address.h"
#include "launch/hostlist.h"
#include "launch/launcher.h"
#include "os/file.h"
#include "os/program.h"
#include "os/sys.h"

enum { MOST_RANKS = 4096, MOST_FILES = 65536, LIST_SIZE = 1 << 20, ENOUGH_RESTARTS = 3 };

/* ---- hosts ---- */

static manta_status read_list(launcher *l, const char *path)
{
    char *text = mem_new(LIST_SIZE);
    manta_status st = file_read_text(path, text, LIST_SIZE);

    if (!st) st = route_read_hosts(path, text, &l->list);
    mem_free(text);
    for (size_t i = 0; l->way == ROUTE_MPI && i < l->list.n; i++) {
        if (strpbrk(l->list.at[i].name, "@:[]"))
            return manta_fail(
                MANTA_EINVAL,
                "%s: %s: mpirun takes names alone; a user or a port is ssh's configuration to say", path,
                l->list.at[i].name);
    }
    return st;
}

static void add_host(launcher *l, const char *name)
{
    vec_push(&l->list, (route_host){.name = mem_strdup(name)});
}

static manta_status add_slurm_hosts(launcher *l, const char *text)
{
    char **names;
    int n;

    TRY(hostlist_parse(text, &names, &n));
    if (l->o->nodes > n) {
        hostlist_free(names, n);
        return manta_fail(MANTA_EINVAL, "--nodes %d: the allocation has %d", l->o->nodes, n);
    }
    for (int i = 0; i < n && (!l->o->nodes || i < l->o->nodes); i++) add_host(l, names[i]);
    hostlist_free(names, n);
    return l->list.n ? MANTA_OK : manta_fail(MANTA_EINVAL, "the allocation has no nodes");
}

/* ---- an allocation of our own ---- */

/* A signal while nodes are waited for. salloc is asked to end: killed, it would leave its request in the queue. */
static manta_status stop_waiting(launcher *l)
{
    struct signalfd_siginfo s;

    if (os->read(l->signals, &s, sizeof s) == (ssize_t)sizeof s) l->signal = (int)s.ssi_signo;
    spawn_signal(&l->allocation, SIGTERM);
    return manta_fail(MANTA_ECANCELLED, "ended while waiting for nodes of Slurm");
}

/* What salloc's command says first; waits as long as the queue is, or until a signal comes. */
static manta_status read_grant(launcher *l, int fd, char *out, size_t size)
{
    size_t have = 0;

    while (!memchr(out, '\n', have)) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = l->signals, .events = POLLIN}};
        ssize_t n;
        if (have + 1 == size) return manta_fail(MANTA_EIO, "salloc names more nodes than fit here");
        if (os->poll(p, 2, -1) < 0) continue;
        if (p[1].revents) return stop_waiting(l);
        n = os->read(fd, out + have, size - 1 - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return manta_fail(MANTA_EBUSY, "Slurm gives no nodes: salloc says why above");
        have += (size_t)n;
    }
    out[have] = '\0';
    return MANTA_OK;
}

static bool is_number(const char *text)
{
    return *text && !text[strspn(text, "0123456789")];
}

static manta_status allocate_nodes(launcher *l)
{
    route_words words = {0};
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    char grant[65536] = "", job[64], hosts[65536];
    manta_status st;

    if (os->pipe2(in, O_CLOEXEC) || os->pipe2(out, O_CLOEXEC)) {
        st = manta_fail(MANTA_EIO, "no pipe can be had: %s", strerror(errno));
        for (int i = 0; i < 2 && in[0] >= 0; i++) os->close(in[i]);
        return st;
    }
    route_words_to_allocate(l->o->nodes, l->o->slurm ? l->o->slurm : "", &words);
    /* It outlives us: killed with us it could not give the nodes back. It ends when its input does. */
    st = program_run(&(program_options){.argv = (const char *const *)words.at,
                                        .standard = (int[]){in[0], out[1], SPAWN_PARENTS},
                                        .own_session = true,
                                        .files = &l->files,
                                        .outlives = true},
                     &l->allocation);
    route_release_words(&words);
    os->close(in[0]);
    os->close(out[1]);
    l->hold = in[1];
    if (!st) st = read_grant(l, out[0], grant, sizeof grant);
    os->close(out[0]);
    if (st) return st;
    if (sscanf(grant, "%63s %65535s", job, hosts) != 2 || !is_number(job))
        return manta_fail(MANTA_EIO, "salloc's command says \"%.60s\": expected a job and its nodes", grant);
    l->slurm_job = mem_strdup(job);
    return add_slurm_hosts(l, hosts);
}

static manta_status find_slurm_hosts(launcher *l, bool allocate)
{
    const char *job = getenv("SLURM_JOB_ID"), *nodes = getenv("SLURM_JOB_NODELIST");

    if (job && nodes) {
        if (!is_number(job))
            return manta_fail(MANTA_EINVAL, "SLURM_JOB_ID is \"%.60s\": expected a number", job);
        l->slurm_job = mem_strdup(job);
        return add_slurm_hosts(l, nodes);
    }
    if (!l->o->nodes)
        return manta_fail(MANTA_EINVAL,
                          "--on slurm needs --nodes N, or to run inside an allocation (sbatch, salloc)");
    if (allocate) return allocate_nodes(l);
    for (int i = 0; i < l->o->nodes; i++) { /* for a plan */
        char name[32];
        snprintf(name, sizeof name, "NODE-%d", i + 1);
        add_host(l, name);
    }
    return MANTA_OK;
}

static manta_status find_hosts(launcher *l, bool allocate)
{
    const char *file;

    TRY(route_parse(l->o->on, &l->way, &file));
    if (l->way != ROUTE_SLURM && l->o->slurm) return manta_fail(MANTA_EINVAL, "--slurm is for --on slurm");
    if (l->way != ROUTE_SLURM && l->way != ROUTE_POD && l->o->nodes)
        return manta_fail(MANTA_EINVAL, "--nodes is for --on slurm and --on k8s");
    if (l->way != ROUTE_SSH && l->o->ssh) return manta_fail(MANTA_EINVAL, "--ssh is for --on ssh:FILE");
    if (l->way == ROUTE_POD) {
        l->pod = file;
        return launcher_open_pod(l);
    }
    if (file) return read_list(l, file);
    if (l->way == ROUTE_SLURM) return find_slurm_hosts(l, allocate);
    add_host(l, "this host");
    return MANTA_OK;
}

/* ---- ranks ---- */

static bool is_training(const char *const *argv)
{
    return !strcmp(argv[0], "train") || (!strcmp(argv[0], "manta") && argv[1] && !strcmp(argv[1], "train"));
}

static void place_rank(launcher *l, int host, int number)
{
    launch_rank *r = &l->ranks[number];

    *r = (launch_rank){.host = host, .status = -1, .output = {{.to = &l->sinks[0]}, {.to = l->error}}};
    for (int i = 0; i < 2 && !l->o->plain; i++)
        snprintf(r->output[i].prefix, sizeof r->output[i].prefix, "[rank %d] ", l->base + number);
}

static manta_status place_ranks(launcher *l)
{
    int usual = l->o->processes ? l->o->processes : 1;

    l->hosts = mem_new(l->list.n * sizeof *l->hosts);
    for (; (size_t)l->n_hosts < l->list.n; l->n_hosts++) {
        const route_host *at = &l->list.at[l->n_hosts];
        launch_host *h = &l->hosts[l->n_hosts];
        *h = (launch_host){.name = at->name,
                           .first = l->n_ranks,
                           .count = at->processes ? at->processes : usual,
                           .in = -1,
                           .out = -1,
                           .err = -1,
                           .t = {.in = -1, .out = -1},
                           .said = {.to = l->error}};
        snprintf(h->said.prefix, sizeof h->said.prefix, "[%.27s] ", at->name);
        if (h->count > MOST_RANKS - l->n_ranks)
            return manta_fail(MANTA_EINVAL, "%d ranks are too many: at most %d are possible",
                              l->n_ranks + h->count, MOST_RANKS);
        l->n_ranks += h->count;
    }
    l->ranks = mem_new((size_t)l->n_ranks * sizeof *l->ranks);
    for (int i = 0; i < l->n_hosts; i++) {
        for (int k = 0; k < l->hosts[i].count; k++) place_rank(l, i, l->hosts[i].first + k);
    }
    return MANTA_OK;
}

/* Of one file there is one sink, or the two would tear each other's lines. */
static void open_sinks(launcher *l)
{
    struct stat out, err;
    bool same =
        !os->fstat(1, &out) && !os->fstat(2, &err) && out.st_dev == err.st_dev && out.st_ino == err.st_ino;

    sink_open(&l->sinks[0], 1);
    sink_open(&l->sinks[1], 2);
    l->error = &l->sinks[same ? 0 : 1];
}

/* Standard descriptors that are closed would be given to pipes of ours, and what ranks print would go there. Writing to
 * an output that was closed fails as it did; to a standard error that was, it goes nowhere. */
static manta_status hold_standards(void)
{
    for (int fd = 0; fd < 3; fd++) {
        struct stat at;
        if (!os->fstat(fd, &at)) continue;
        if (os->open("/dev/null", fd == 2 ? O_RDWR : O_RDONLY, 0) < 0) /* the lowest that is free */
            return manta_fail(MANTA_EIO, "/dev/null cannot be opened: %s", strerror(errno));
    }
    return MANTA_OK;
}

static manta_status open_signals(launcher *l)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t mask;

    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        if (!sigaction(numbers[i], NULL, &before) && before.sa_handler == SIG_IGN) continue; /* nohup */
        sigaddset(&mask, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &mask, NULL);
    signal(SIGPIPE, SIG_IGN);
    l->signals = os->signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signals < 0 ? manta_fail(MANTA_EIO, "signals cannot be read: %s", strerror(errno)) : MANTA_OK;
}

/* A name for this launch that no other has: of it the ports come. */
static manta_status name_job(launcher *l)
{
    unsigned char random[6];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return manta_fail(MANTA_EIO, "there are no random bytes: %s", strerror(errno));
    l->job =
        mem_printf("%s%s%02x%02x%02x%02x%02x%02x", l->slurm_job ? l->slurm_job : "", l->slurm_job ? "-" : "",
                   random[0], random[1], random[2], random[3], random[4], random[5]);
    return MANTA_OK;
}

/* What goes to other hosts goes as JSON, and nothing in it is changed on the way. */
static manta_status check_text(const char *what, const char *text)
{
    json_t *v = json_string(text);

    if (!v)
        return manta_fail(MANTA_EINVAL, "%s is not UTF-8, and nothing else can be sent to other hosts", what);
    json_decref(v);
    return MANTA_OK;
}

static manta_status check_variables(const char *list)
{
    char *names = mem_strdup(list), *rest = NULL;
    manta_status st = MANTA_OK;

    for (char *name = strtok_r(names, ",", &rest); name && !st; name = strtok_r(NULL, ",", &rest)) {
        st = check_text("--export", name);
        if (!st && strchr(name, '='))
            st = manta_fail(MANTA_EINVAL,
                            "--export %.60s: expected names alone, which processes get as they are here",
                            name);
        if (!st && getenv(name)) st = check_text(name, getenv(name));
    }
    mem_free(names);
    return st;
}

/* How many bytes a text has in a message, at most: JSON writes \u001b for what cannot be printed. */
static size_t size_in_message(const char *text)
{
    size_t n = 4; /* quotes and what separates it from others */

    for (; *text; text++) n += (unsigned char)*text < ' ' ? 6 : *text == '"' || *text == '\\' ? 2 : 1;
    return n;
}

/* What ranks are to run goes to each agent in one message. */
static manta_status check_size(const launcher *l)
{
    size_t n = 4096 + 2 * PATH_MAX + (size_t)l->n_ranks * (ADDRESS_TEXT + 12);
    char *names = mem_strdup(l->o->variables ? l->o->variables : ""), *rest = NULL;

    for (const char *const *w = l->o->argv; *w; w++) n += size_in_message(*w);
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        n += size_in_message(name) + (getenv(name) ? size_in_message(getenv(name)) : 0);
    mem_free(names);
    return n <= TALK_MOST
               ? MANTA_OK
               : manta_fail(
                     MANTA_EINVAL,
                     "the program's arguments, the variables of --export and the addresses of %d ranks have "
                     "%zu bytes, at most %d can be sent to a host",
                     l->n_ranks, n, TALK_MOST);
}

static bool is_time(int64_t ms)
{
    return ms >= 0 && ms <= INT_MAX;
}

static manta_status check_options(const manta_launch_options *o)
{
    char folder[PATH_MAX];

    if (!o->argv || !o->argv[0] || !*o->argv[0])
        return manta_fail(MANTA_EINVAL, "there is no program: expected one, and its arguments, behind --");
    if (o->processes < 0 || o->processes > MOST_RANKS || o->nodes < 0 || o->nodes > MOST_RANKS)
        return manta_fail(MANTA_EINVAL, "at most %d processes and nodes are possible", MOST_RANKS);
    if (!is_time(o->grace_ms) || !is_time(o->lease_ms) || !is_time(o->start_ms))
        return manta_fail(MANTA_EINVAL, "grace, lease and start-timeout have from 0 to %d ms", INT_MAX);
    if (o->max_restarts < 0 && o->max_restarts != MANTA_NONE)
        return manta_fail(MANTA_EINVAL, "max-restarts is %d: expected 0 or more", o->max_restarts);
    if (o->folder && strlen(o->folder) >= PATH_MAX)
        return manta_fail(MANTA_EINVAL, "the folder's path has %zu bytes, at most %d are possible",
                          strlen(o->folder), PATH_MAX - 1);
    if (o->folder && *o->folder != '/')
        return manta_fail(
            MANTA_EINVAL,
            "--folder %.200s: expected a path from / on, since agents begin in folders of their own",
            o->folder);
    for (const char *const *w = o->argv; *w; w++) TRY(check_text("an argument of the program", *w));
    if (o->variables) TRY(check_variables(o->variables));
    if (!o->folder && !getcwd(folder, sizeof folder))
        return manta_fail(MANTA_EIO, "the folder of this process cannot be told: %s", strerror(errno));
    return check_text("the folder", o->folder ? o->folder : folder);
}

manta_status launcher_open(launcher *l, const manta_launch_options *o, bool allocate)
{
    *l = (launcher){.o = o, .culprit = -1, .deadline = CLOCK_NEVER, .signals = -1, .hold = -1};
    TRY(check_options(o));
    TRY(hold_standards());
    open_sinks(l);
    if (allocate) {
        TRY(open_signals(l));
        proc_raise_files(MOST_FILES, &l->files); /* four for each host */
    }
    TRY(find_hosts(l, allocate));
    TRY(place_ranks(l));
    TRY(check_size(l));
    l->max_restarts = o->max_restarts == MANTA_NONE ? 0
                      : o->max_restarts             ? o->max_restarts
                      : is_training(o->argv)        ? ENOUGH_RESTARTS
                                                    : 0;
    return name_job(l);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) os->close(*fd);
    *fd = -1;
}

void launcher_close(launcher *l)
{
    for (int i = 0; i < l->n_hosts; i++) {
        talk_release(&l->hosts[i].t);
        buf_release(&l->hosts[i].said.begun);
        close_fd(&l->hosts[i].in);
        close_fd(&l->hosts[i].out);
        close_fd(&l->hosts[i].err);
    }
    for (int i = 0; l->ranks && i < l->n_ranks; i++) {
        mem_free(l->ranks[i].address);
        buf_release(&l->ranks[i].output[0].begun);
        buf_release(&l->ranks[i].output[1].begun);
    }
    explicit_bzero(l->key, sizeof l->key);
    close_fd(&l->hold); /* salloc's command ends, and with it the allocation */
    (void)spawn_end(&l->allocation, clock_deadline(10000));
    close_fd(&l->signals);
    proc_restore_files(MOST_FILES, &l->files);
    for (int i = 0; i < 2; i++) sink_close(&l->sinks[i]);
    route_release_hosts(&l->list);
    mem_free(l->hosts);
    mem_free(l->ranks);
    mem_free(l->job);
    mem_free(l->slurm_job);
}

/* ---- commands ---- */

static const char *own_program(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);

    if (n <= 0) return "manta";
    out[n] = '\0';
    return out;
}

static void words_of(const launcher *l, const launch_host *h, route_words *out)
{
    char own[PATH_MAX];
    const char *program = l->o->program ? l->o->program : own_program(own, sizeof own);
    const char *with = l->way == ROUTE_SLURM ? (l->slurm_job ? l->slurm_job : "JOB")
                       : l->o->ssh           ? l->o->ssh
                                             : "ssh";

    route_words_for(l->way, h->name, with, program, out);
}

manta_status launcher_start_host(launcher *l, launch_host *h)
{
    route_words words = {0};
    int fds[3][2];
    manta_status st;

    for (int i = 0; i < 3; i++) {
        if (os->pipe2(fds[i], O_CLOEXEC)) {
            st = manta_fail(MANTA_EIO, "no pipe can be had: %s", strerror(errno));
            while (i--) os->close(fds[i][0]), os->close(fds[i][1]);
            return st;
        }
    }
    words_of(l, h, &words);
    st = program_run(&(program_options){.argv = (const char *const *)words.at,
                                        .standard = (int[]){fds[0][0], fds[1][1], fds[2][1]},
                                        .own_session = true,
                                        .files = &l->files,
                                        /* An agent of this host ends what it has started when its input ends;
                                           killed with us it could not. */
                                        .outlives = l->way == ROUTE_HERE || l->way == ROUTE_POD},
                     &h->child);
    route_release_words(&words);
    os->close(fds[0][0]);
    os->close(fds[1][1]);
    os->close(fds[2][1]);
    if (st) {
        os->close(fds[0][1]);
        os->close(fds[1][0]);
        os->close(fds[2][0]);
        return st;
    }
    h->out = fds[0][1];
    h->in = fds[1][0];
    h->err = fds[2][0];
    (void)os->fcntl(h->err, F_SETFL, O_NONBLOCK);
    talk_init(&h->t, h->in, h->out, true);
    return MANTA_OK;
}

/* ---- a plan ---- */

static void add_command(buf *b, const char *const *words)
{
    for (; *words; words++) {
        char *word = route_shell_word(*words);
        buf_printf(b, " %s", word);
        mem_free(word);
    }
    buf_add_char(b, '\n');
}

static void add_plan(const launcher *l, buf *b)
{
    route_words words = {0};

    if (l->way == ROUTE_SLURM && !l->slurm_job) {
        route_words_to_allocate(l->o->nodes, l->o->slurm ? l->o->slurm : "", &words);
        buf_add_text(b, "first:");
        add_command(b, (const char *const *)words.at);
        route_release_words(&words);
    }
    for (int i = 0; i < l->n_hosts; i++) {
        const launch_host *h = &l->hosts[i];
        buf_printf(b, h->count == 1 ? "%s, rank %d:" : "%s, ranks %d to %d:", h->name, h->first,
                   h->first + h->count - 1);
        words_of(l, h, &words);
        add_command(b, (const char *const *)words.at);
        route_release_words(&words);
    }
    buf_add_text(b, "each rank:");
    add_command(b, l->o->argv);
}

manta_status manta_launch_plan(const manta_launch_options *launch, char **out)
{
    launcher l;
    buf b = {0};
    manta_status st;

    if (!launch) return manta_fail(MANTA_EINVAL, "manta_launch_plan: launch is NULL, expected what to start");
    if (!out) return manta_fail(MANTA_EINVAL, "manta_launch_plan: out is NULL, expected a place");
    st = launcher_open(&l, launch, false);
    if (!st) {
        add_plan(&l, &b);
        *out = strdup(buf_text(&b));
        if (!*out) st = manta_fail(MANTA_ENOMEM, "no memory for a plan");
    }
    buf_release(&b);
    launcher_close(&l);
    return st;
}
