/* route.c - see route.h. */
#include "launch/route.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <manta/tool_text.h>

enum { NAME = 300, MOST_PROCESSES = 1024, MOST_HOSTS = 1024 };

manta_status route_parse(const char *on, route_way *way, const char **file)
{
    static const struct {
        const char *word;
        route_way way;
    } ways[] = {{"ssh:", ROUTE_SSH}, {"mpi:", ROUTE_MPI}, {"pod:", ROUTE_POD}};

    *file = NULL;
    *way = ROUTE_HERE;
    if (!on) return MANTA_OK;
    if (!strcmp(on, "slurm")) {
        *way = ROUTE_SLURM;
        return MANTA_OK;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strncmp(on, ways[i].word, 4) != 0 || !on[4]) continue;
        *way = ways[i].way;
        *file = on + 4;
        return MANTA_OK;
    }
    if (!strcmp(on, "k8s"))
        return manta_fail(MANTA_EINVAL,
                          "--on k8s needs --print: manifests are written, and kubectl applies them");
    return manta_fail(MANTA_EINVAL,
                      "--on %.100s: expected ssh:FILE, slurm or mpi:FILE, where FILE has a host a line, or "
                      "k8s with --print",
                      on);
}

/* ---- hosts ---- */

void route_release_hosts(route_hosts *h)
{
    for (size_t i = 0; i < h->n; i++) mem_free(h->at[i].name);
    vec_release(h);
}

/* A name goes into a command line of ssh's or mpirun's: nothing in it may be an option, or a word of a shell. */
static bool is_name(const char *word)
{
    if (*word == '-' || !*word || strlen(word) > NAME) return false;
    for (; *word; word++) {
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@:[]%", *word))
            return false;
    }
    return true;
}

static manta_status read_slots(const char *where, int line, const char *word, int *out)
{
    char *end;
    long n = strncmp(word, "slots=", 6) != 0 ? 0 : strtol(word + 6, &end, 10);

    if (n < 1 || n > MOST_PROCESSES || *end)
        return manta_fail(MANTA_EINVAL, "%s, line %d: \"%.60s\": expected slots=N, from 1 to %d", where, line,
                          word, MOST_PROCESSES);
    *out = (int)n;
    return MANTA_OK;
}

/* One line, which is written to. */
static manta_status read_line(const char *where, int number, char *line, route_hosts *out)
{
    char *rest = NULL, *name, *word;
    route_host h = {0};

    line[strcspn(line, "#")] = '\0';
    name = strtok_r(line, " \t\r", &rest);
    if (!name) return MANTA_OK;
    if (!is_name(name))
        return manta_fail(MANTA_EINVAL, "%s, line %d: \"%.60s\" is no host: expected [USER@]HOST[:PORT]",
                          where, number, name);
    while ((word = strtok_r(NULL, " \t\r", &rest))) TRY(read_slots(where, number, word, &h.processes));
    for (size_t i = 0; i < out->n; i++) {
        if (!strcmp(out->at[i].name, name))
            return manta_fail(MANTA_EINVAL,
                              "%s, line %d: %s is there twice; slots=N says how many processes it has", where,
                              number, name);
    }
    if (out->n == MOST_HOSTS)
        return manta_fail(MANTA_EINVAL, "%s, line %d: at most %d hosts are possible", where, number,
                          MOST_HOSTS);
    h.name = mem_strdup(name);
    vec_push(out, h);
    return MANTA_OK;
}

manta_status route_read_hosts(const char *where, const char *text, route_hosts *out)
{
    manta_status st = MANTA_OK;
    int number = 0;

    while (*text && !st) {
        size_t n = strcspn(text, "\n");
        char *line = mem_strndup(text, n);
        st = read_line(where, ++number, line, out);
        mem_free(line);
        text += n + (text[n] == '\n');
    }
    if (!st && !out->n)
        st = manta_fail(MANTA_EINVAL, "%s: there is no host in it: expected one a line", where);
    if (st) route_release_hosts(out);
    return st;
}

/* ---- commands ---- */

static void add_word(route_words *w, const char *word)
{
    vec_push(w, mem_strdup(word));
}

static void add_words(route_words *w, const char *text)
{
    for (size_t n; *(text += strspn(text, " ")); text += n) {
        n = strcspn(text, " ");
        vec_push(w, mem_strndup(text, n));
    }
}

char *route_shell_word(const char *word)
{
    size_t size = 4 * strlen(word) + 16; /* a quote needs four */
    char *out = mem_new(size);

    (void)manta_shell_word(word, out, size);
    return out;
}

/* USER@HOST, and the address of version 6 in it without the brackets, which ssh takes for a part of a name. */
static char *ssh_destination(const char *host, size_t n)
{
    char *out = mem_strndup(host, n), *put = out;

    for (const char *at = out; *at; at++) {
        if (*at != '[' && *at != ']') *put++ = *at;
    }
    *put = '\0';
    return out;
}

/* USER@HOST:PORT; an address of version 6 is in brackets when a port follows. */
static void add_ssh(route_words *w, const char *host, const char *ssh, const char *program)
{
    const char *colon = strrchr(host, ':'), *bracket = strrchr(host, ']');
    bool has_port = colon && (bracket ? bracket < colon : strchr(host, ':') == colon);
    char *word = route_shell_word(program);

    add_words(w, ssh);
    add_words(w,
              "-T -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=5 -o ServerAliveCountMax=4");
    if (has_port) {
        add_word(w, "-p");
        add_word(w, colon + 1);
    }
    add_word(w, "--");
    vec_push(w, ssh_destination(host, has_port ? (size_t)(colon - host) : strlen(host)));
    vec_push(w, mem_printf("exec %s agent", word));
    mem_free(word);
}

void route_words_for(route_way way, const char *host, const char *with, const char *program, route_words *out)
{
    if (way == ROUTE_SSH) {
        add_ssh(out, host, with, program);
    } else {
        if (way == ROUTE_SLURM) {
            add_words(out,
                      "srun --nodes=1 --ntasks=1 --overlap --unbuffered --kill-on-bad-exit=0 --mpi=none");
            vec_push(out, mem_printf("--jobid=%s", with));
            vec_push(out, mem_printf("--nodelist=%s", host));
        } else if (way == ROUTE_MPI) {
            add_words(out, "mpirun -n 1 -host");
            add_word(out, host);
        }
        add_word(out, program);
        add_word(out, "agent");
    }
    vec_push(out, NULL);
}

void route_words_to_allocate(int nodes, const char *more, route_words *out)
{
    add_words(out, "salloc --no-kill --signal=TERM@60");
    vec_push(out, mem_printf("--nodes=%d", nodes));
    add_words(out, more);
    add_words(out, "sh -c");
    add_word(out, "echo \"$SLURM_JOB_ID $SLURM_JOB_NODELIST\"; exec cat >/dev/null");
    vec_push(out, NULL);
}

void route_release_words(route_words *w)
{
    for (size_t i = 0; i < w->n; i++) mem_free(w->at[i]);
    vec_release(w);
}

/* ---- remedies ---- */

const char *route_remedy(route_way way, int status, const char *said)
{
    static const struct {
        const char *word, *remedy;
    } rows[] = {
        {"Permission denied (",
         "'ssh HOST true' must work without a question: ssh-copy-id HOST brings your key there"},
        {"Host key verification failed",
         "ssh does not know the host's key yet: 'ssh HOST true' once, by hand"},
        {"Connection refused", "no sshd listens there, or at another port: HOST:PORT in the list of hosts"},
        {"Could not resolve", "nobody knows that name: see the list of hosts"},
        {"No route to host", "there is no way to that host: see the network, or its address"},
        {"Network is unreachable", "there is no way to that host: see the network, or its address"},
        {"timed out", "the host does not answer: see whether it runs, and its firewall"},
        {"as root", "mpirun does not run as root: use another user, or set OMPI_ALLOW_RUN_AS_ROOT=1 and "
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"},
        {"No such file", "manta must be at the same path on every host, or --manta names where it is there"},
        {"not found", "manta must be at the same path on every host, or --manta names where it is there"},
        {"Permission denied", "the program there cannot be run: --manta names another"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strstr(said, rows[i].word)) return rows[i].remedy;
    }
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 126))
        return "manta must be at the same path on every host, or --manta names where it is there";
    switch (way) {
    case ROUTE_SSH: return "'ssh HOST MANTA --version' must work without a question";
    case ROUTE_SLURM: return "'srun --nodelist=HOST MANTA --version' must work within the allocation";
    case ROUTE_MPI: return "'mpirun -n 1 -host HOST MANTA --version' must work";
    default: return "'manta --version' must work";
    }
}
