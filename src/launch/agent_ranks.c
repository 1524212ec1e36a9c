/* agent_ranks.c - the ranks of an agent: ports, starts, what they print, ends. agent.h has the
 * processes and what is promised of them.
 *
 *     agent_take_ports()   a listening socket for each rank, held here: who is started again finds
 *                          the same port, and nobody else gets it meanwhile
 *     agent_start_rank()   TF_CONFIG, MANTA_LISTEN_FD, MANTA_CLUSTER_KEY, MANTA_JOB; a session of its own
 *     agent_read_pipe()    what it prints, to the launcher; dropped when that is gone
 *     agent_bury_rank()    its group is killed, what is left in its pipes is read, then it is waited for
 *
 * In that order at the end: once it has been waited for its number may be another process's, and a
 * signal to its group would meet that one. A pipe is read a bounded number of times, because what
 * a rank has started may have left its group, hold the pipe and go on writing. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/vec.h"
#include "launch/agent.h"
#include "net/tcp.h"
#include "os/program.h"
#include "os/sys.h"

enum { CHUNK = 32768, LAST_READS = 64 /* more than a pipe holds */ };

/* ---- ports ---- */

manta_status agent_take_ports(agent *a, int first, int count, int port)
{
    a->ranks = mem_new((size_t)count * sizeof *a->ranks);
    for (; a->n < count; a->n++) {
        agent_rank *r = &a->ranks[a->n];
        *r = (agent_rank){.number = first + a->n, .pipes = {-1, -1}, .listener = -1};
        if (port)
            TRY(address_listen_at(a->host, port + a->n, &r->listener, r->address, sizeof r->address));
        else
            TRY(address_listen(a->host, a->job, r->number, &r->listener, r->address, sizeof r->address));
    }
    return MANTA_OK;
}

void agent_drain_ports(agent *a)
{
    char from[TCP_TEXT];
    int fd;

    for (int i = 0; i < a->n; i++) {
        while (!tcp_accept(a->ranks[i].listener, &fd, from)) os->close(fd);
    }
}

/* ---- starting ---- */

typedef VEC(char *) texts;

static void set_variable(texts *t, const char *name, const char *value)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < t->n; i++) {
        if (strncmp(t->at[i], name, n) != 0 || t->at[i][n] != '=') continue;
        mem_free(t->at[i]);
        t->at[i] = mem_printf("%s=%s", name, value);
        return;
    }
    vec_push(t, mem_printf("%s=%s", name, value));
}

static void set_number(texts *t, const char *name, const char *before, int value)
{
    char text[64];

    snprintf(text, sizeof text, "%s%d", before, value);
    set_variable(t, name, text);
}

static void free_texts(texts *t)
{
    for (size_t i = 0; i < t->n; i++) mem_free(t->at[i]);
    vec_release(t);
}

/* The environment of a rank: ours, what the launcher sends, and its place. */
static void make_environment(const agent *a, const agent_rank *r, texts *out)
{
    const char *name;
    json_t *value, *config = json_pack("{s:{s:O}, s:{s:s, s:i}}", "cluster", "worker",
                                       json_object_get(a->go, "cluster"), "task", "type", "worker", "index",
                                       (int)json_integer_value(json_object_get(a->go, "base")) + r->number);
    char *text = json_dumps(config, JSON_COMPACT);

    for (char **e = environ; *e; e++) vec_push(out, mem_strdup(*e));
    json_object_foreach(json_object_get(a->go, "variables"), name, value)
    {
        set_variable(out, name, json_string_value(value));
    }
    if (!text) abort(); /* small control memory */
    set_variable(out, "TF_CONFIG", text);
    set_number(out, "MANTA_LISTEN_FD", "", r->listener);
    set_number(out, "MANTA_CLUSTER_KEY", "/proc/self/fd/", a->key);
    set_variable(out, "MANTA_JOB", a->job);
    vec_push(out, NULL);
    json_decref(config);
    free(text);
}

/* The words of the program. "train", and "manta" before it, mean the program that runs here. */
static void make_words(const agent *a, texts *out)
{
    json_t *words = json_object_get(a->go, "argv"), *word;
    size_t i;
    const char *first = json_string_value(json_array_get(words, 0));
    char own[4096];
    ssize_t n = 0;

    if (!strcmp(first, "manta") || !strcmp(first, "train"))
        n = readlink("/proc/self/exe", own, sizeof own - 1);
    if (n > 0) vec_push(out, mem_strndup(own, (size_t)n));
    json_array_foreach(words, i, word)
    {
        if (n > 0 && !i && !strcmp(first, "manta")) continue;
        vec_push(out, mem_strdup(json_string_value(word)));
    }
    vec_push(out, NULL);
}

static manta_status open_pipes(int fds[2][2])
{
    if (os->pipe2(fds[0], O_CLOEXEC)) return manta_fail(MANTA_EIO, "no pipe can be had: %s", strerror(errno));
    if (!os->pipe2(fds[1], O_CLOEXEC)) return MANTA_OK;
    (void)!manta_fail(MANTA_EIO, "no pipe can be had: %s", strerror(errno));
    os->close(fds[0][0]);
    os->close(fds[0][1]);
    return MANTA_EIO;
}

manta_status agent_start_rank(agent *a, agent_rank *r)
{
    texts environment = {0}, words = {0};
    int fds[2][2];
    manta_status st;

    TRY(open_pipes(fds));
    make_environment(a, r, &environment);
    make_words(a, &words);
    st = program_run(&(program_options){.argv = (const char *const *)words.at,
                                        .environment = environment.at,
                                        .folder = json_string_value(json_object_get(a->go, "folder")),
                                        .standard = (int[]){SPAWN_NULL, fds[0][1], fds[1][1]},
                                        .keep = (int[]){r->listener, a->key},
                                        .n_keep = 2,
                                        .files = &a->files,
                                        .own_session = true},
                     &r->child);
    for (int i = 0; i < 2; i++) {
        os->close(fds[i][1]);
        if (st) os->close(fds[i][0]);
        r->pipes[i] = st ? -1 : fds[i][0];
        if (!st) (void)os->fcntl(r->pipes[i], F_SETFL, O_NONBLOCK);
    }
    free_texts(&environment);
    free_texts(&words);
    return st;
}

/* ---- while they run ---- */

void agent_signal_ranks(agent *a, int number)
{
    for (int i = 0; i < a->n; i++) {
        if (a->ranks[i].child.pid > 0) (void)os->kill(-a->ranks[i].child.pid, number);
    }
}

/* False: nothing more has come for now. */
static bool read_chunk(agent *a, agent_rank *r, int i)
{
    char data[CHUNK];
    ssize_t n = r->pipes[i] < 0 ? -1 : os->read(r->pipes[i], data, sizeof data);

    if (r->pipes[i] < 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return false;
    if (n <= 0) {
        os->close(r->pipes[i]);
        r->pipes[i] = -1;
        return false;
    }
    if (!a->alone) talk_post_output(&a->t, (uint32_t)r->number, i + 1, data, (size_t)n);
    return true;
}

void agent_read_pipe(agent *a, agent_rank *r, int i)
{
    (void)read_chunk(a, r, i);
}

int agent_bury_rank(agent *a, agent_rank *r)
{
    int status;

    (void)os->kill(-r->child.pid, SIGKILL);
    for (int i = 0; i < 2; i++) {
        /* What it printed is there whole. What it started may have left its group, hold the pipe and go on writing. */
        for (int k = 0; k < LAST_READS && read_chunk(a, r, i); k++) continue;
        if (r->pipes[i] >= 0) os->close(r->pipes[i]);
        r->pipes[i] = -1;
    }
    status = spawn_wait(&r->child);
    return status;
}
