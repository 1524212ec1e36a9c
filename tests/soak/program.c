/* program.c - the text of a program; see program.h. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

bool soak_is_strict;

static const struct {
    const char *name;
    bool fills;
} kinds[SOAK_KINDS] = {[SOAK_NODE] = {"node", false},       [SOAK_PUT] = {"put", true},
                       [SOAK_CALL] = {"call", true},        [SOAK_GET] = {"get", false},
                       [SOAK_WAIT] = {"wait", false},       [SOAK_DROP] = {"drop", false},
                       [SOAK_CANCEL] = {"cancel", false},   [SOAK_KILL] = {"kill", false},
                       [SOAK_ZYGOTE] = {"zygote", false},   [SOAK_ACTOR] = {"actor", true},
                       [SOAK_READY] = {"ready", false},     [SOAK_METHOD] = {"method", true},
                       [SOAK_COUNT] = {"count", false},     [SOAK_VIA] = {"via", true},
                       [SOAK_FIND] = {"find", false},       [SOAK_END] = {"end", false},
                       [SOAK_KILL_ACTOR] = {"slay", false}, [SOAK_LEAVE] = {"leave", false},
                       [SOAK_STREAM] = {"stream", true},    [SOAK_NEXT] = {"next", false},
                       [SOAK_CLOSE] = {"close", false},     [SOAK_QUEUE] = {"queue", false},
                       [SOAK_MAP] = {"map", false},         [SOAK_GROUP] = {"group", false},
                       [SOAK_HOLD] = {"hold", false},       [SOAK_FREE] = {"free", false},
                       [SOAK_THREADS] = {"threads", false}};

static const char *const fields[SOAK_FIELDS] = {
    [SOAK_N] = "n",
    [SOAK_SIZE] = "size",
    [SOAK_RESULT] = "result",
    [SOAK_RESULTS] = "results",
    [SOAK_DEPTH] = "depth",
    [SOAK_WIDTH] = "width",
    [SOAK_REFS] = "refs",
    [SOAK_SLEEP] = "sleep",
    [SOAK_FAIL] = "fail",
    [SOAK_CPUS] = "cpus",
    [SOAK_TOKENS] = "tokens",
    [SOAK_RETRIES] = "retries",
    [SOAK_HOW] = "how",
    [SOAK_TIMEOUT] = "timeout",
    [SOAK_PARALLEL] = "parallel",
    [SOAK_RESTARTS] = "restarts",
    [SOAK_NAMED] = "named",
    [SOAK_MOST] = "most",
    [SOAK_ACTOR_CPUS] = "actor_cpus",
    [SOAK_FILES] = "files",
    [SOAK_STORE] = "store",
    [SOAK_SPILL] = "spill",
    [SOAK_INSIDE] = "inside",
};

bool soak_kind_fills(soak_kind kind)
{
    return kinds[kind].fills;
}

/* ---- random numbers ---- */

uint64_t soak_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

uint64_t soak_random(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    return soak_mix(*state);
}

int64_t soak_below(uint64_t *state, int64_t n)
{
    return n > 0 ? (int64_t)(soak_random(state) % (uint64_t)n) : 0;
}

/* ---- printing ---- */

static void add(char *text, size_t size, const char *format, const char *name, long long value)
{
    size_t n = strlen(text);

    if (n < size) snprintf(text + n, size - n, format, name, value);
}

void soak_op_print(const soak_op *op, char *text, size_t size)
{
    snprintf(text, size, "%s", kinds[op->kind].name);
    if (op->id) add(text, size, " %s%lld", "r", op->id);
    for (int i = 0; i < SOAK_FIELDS; i++)
        if (op->f[i]) add(text, size, " %s=%lld", fields[i], (long long)op->f[i]);
    for (int i = 0; i < op->n_args; i++) add(text, size, "%sr%lld", i ? "," : " args=", op->args[i]);
}

void soak_program_print(const soak_program *p, FILE *to)
{
    char line[512];

    for (int i = 0; i < p->n; i++) {
        soak_op_print(&p->op[i], line, sizeof line);
        fprintf(to, "%s\n", line);
    }
}

/* ---- reading ---- */

static bool read_slot(const char *word, int *out)
{
    char *end;
    long id = word[0] == 'r' ? strtol(word + 1, &end, 10) : 0;

    *out = (int)id;
    return id > 0 && id < SOAK_SLOTS && !*end;
}

static bool read_args(soak_op *op, char *word)
{
    char *rest;

    for (char *w = strtok_r(word, ",", &rest); w; w = strtok_r(NULL, ",", &rest))
        if (op->n_args == SOAK_ARGS || !read_slot(w, &op->args[op->n_args++])) return false;
    return true;
}

static bool read_word(soak_op *op, char *word)
{
    char *value = strchr(word, '='), *end;

    if (!value) return kinds[op->kind].fills && read_slot(word, &op->id);
    *value++ = 0;
    if (!strcmp(word, "args")) return read_args(op, value);
    for (int i = 0; i < SOAK_FIELDS; i++) {
        if (strcmp(word, fields[i])) continue;
        op->f[i] = strtoll(value, &end, 10);
        return *value && !*end;
    }
    return false;
}

static bool read_line(soak_op *op, char *line)
{
    char *rest, *word = strtok_r(line, " \n", &rest);
    int k = 0;

    *op = (soak_op){0};
    while (word && k < SOAK_KINDS && strcmp(kinds[k].name, word)) k++;
    if (!word || k == SOAK_KINDS) return false;
    op->kind = (soak_kind)k;
    while ((word = strtok_r(NULL, " \n", &rest)))
        if (!read_word(op, word)) return false;
    return !kinds[k].fills || op->id;
}

bool soak_program_read(soak_program *p, FILE *from)
{
    char line[512];

    p->n = 0;
    for (int at = 1; fgets(line, sizeof line, from); at++) {
        if (line[0] == '#' || line[0] == '\n') continue;
        if (p->n <= SOAK_OPS && read_line(&p->op[p->n], line) &&
            (p->op[p->n].kind == SOAK_NODE) == (p->n == 0)) {
            p->n++;
            continue;
        }
        fprintf(stderr, "line %d: no operation of a program, or one too many; the node comes first\n", at);
        return false;
    }
    if (p->n == 0) fprintf(stderr, "a program begins with a line of its node\n");
    return p->n > 0;
}
