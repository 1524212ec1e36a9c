/* tf_config.c - see tf_config.h.
 *
 *   text --> JSON --> cluster: for each job its addresses, by task number
 *                     task:    which job and number this process is
 *                --> checks across both: the task is there, no address is twice,
 *                    somebody trains
 *
 * Nothing is believed of the text but its types: each value is looked at where it is
 * read, and a sentence names its place ("cluster.worker[1]"). Names are compared with
 * the table of jobs; numbers of tasks are bounded before anything is allocated. */
#include "train/cluster/tf_config.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/tcp.h"

static const char *const names[TF_JOBS] = {"chief", "worker", "ps", "evaluator"};

const char *tf_job_name(tf_job j)
{
    return names[j];
}

static int job_of(const char *name)
{
    for (int j = 0; j < TF_JOBS; j++) {
        if (!strcmp(name, names[j])) return j;
    }
    return -1;
}

/* What a value is, in words. */
static const char *kind_of(const json_t *v)
{
    if (!v) return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a text";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    default: return "null";
    }
}

void tf_config_release(tf_config *c)
{
    for (int j = 0; j < TF_JOBS; j++) {
        for (int i = 0; i < c->n[j]; i++) mem_free(c->address[j][i]);
        mem_free(c->address[j]);
    }
    memset(c, 0, sizeof *c);
}

/* ---- the cluster ---- */

static manta_status add_address(tf_config *c, tf_job j, int i, const json_t *v)
{
    char host[TCP_TEXT];
    int port;

    if (!json_is_string(v)) {
        return manta_fail(MANTA_EINVAL, "TF_CONFIG: cluster.%s[%d] must be a text \"host:port\", but is %s",
                          names[j], i, kind_of(v));
    }
    if (tcp_split(json_string_value(v), host, &port) || !port) {
        return manta_fail(
            MANTA_EINVAL,
            "TF_CONFIG: cluster.%s[%d] is \"%.200s\", expected \"host:port\" with a port from 1 "
            "to 65535",
            names[j], i, json_string_value(v));
    }
    c->address[j][i] = mem_strdup(json_string_value(v));
    return MANTA_OK;
}

static manta_status make_room(tf_config *c, tf_job j, size_t n)
{
    if (n > TF_MAX_TASKS) {
        return manta_fail(MANTA_EINVAL, "TF_CONFIG: cluster.%s has more than %d tasks", names[j],
                          TF_MAX_TASKS);
    }
    c->address[j] = mem_new((n + 1) * sizeof *c->address[j]);
    c->n[j] = (int)n;
    return MANTA_OK;
}

/* {"0": "h:p", "3": "h:p"} */
static manta_status read_sparse(tf_config *c, tf_job j, json_t *tasks)
{
    const char *key;
    json_t *v;
    long most = -1;

    json_object_foreach(tasks, key, v)
    {
        char *end;
        long i = strtol(key, &end, 10);
        if (!*key || *end || i < 0 || i >= TF_MAX_TASKS || key[0] == ' ' || key[0] == '+') {
            return manta_fail(MANTA_EINVAL,
                              "TF_CONFIG: cluster.%s has the task \"%.40s\", expected a number from 0 to %d",
                              names[j], key, TF_MAX_TASKS - 1);
        }
        if (i > most) most = i;
    }
    TRY(make_room(c, j, (size_t)(most + 1)));
    json_object_foreach(tasks, key, v)
    {
        int i = (int)strtol(key, NULL, 10);
        if (c->address[j][i])
            return manta_fail(MANTA_EINVAL, "TF_CONFIG: cluster.%s names task %d twice", names[j], i);
        TRY(add_address(c, j, i, v));
    }
    return MANTA_OK;
}

static manta_status read_tasks(tf_config *c, tf_job j, json_t *tasks)
{
    bool list = json_is_array(tasks);
    size_t n = list ? json_array_size(tasks) : json_object_size(tasks);

    if (!list && !json_is_object(tasks)) {
        return manta_fail(MANTA_EINVAL,
                          "TF_CONFIG: cluster.%s must be a list of addresses, or an object from task numbers "
                          "to addresses, but is %s",
                          names[j], kind_of(tasks));
    }
    if (!n) return manta_fail(MANTA_EINVAL, "TF_CONFIG: cluster.%s names no task", names[j]);
    if (!list) return read_sparse(c, j, tasks);
    TRY(make_room(c, j, n));
    for (size_t i = 0; i < n; i++) TRY(add_address(c, j, (int)i, json_array_get(tasks, i)));
    return MANTA_OK;
}

typedef struct place {
    const char *address;
    int job, index;
} place;

static int by_address(const void *a, const void *b)
{
    return strcmp(((const place *)a)->address, ((const place *)b)->address);
}

static manta_status check_duplicates(const tf_config *c)
{
    int n = 0, all = c->n[0] + c->n[1] + c->n[2] + c->n[3];
    place *p = mem_new(((size_t)all + 1) * sizeof *p);
    manta_status st = MANTA_OK;

    for (int j = 0; j < TF_JOBS; j++) {
        for (int i = 0; i < c->n[j]; i++) {
            if (c->address[j][i]) p[n++] = (place){c->address[j][i], j, i};
        }
    }
    qsort(p, (size_t)n, sizeof *p, by_address);
    for (int i = 1; i < n && !st; i++) {
        if (strcmp(p[i - 1].address, p[i].address)) continue;
        st = manta_fail(MANTA_EINVAL, "TF_CONFIG: cluster.%s[%d] and cluster.%s[%d] are both \"%s\"",
                        names[p[i - 1].job], p[i - 1].index, names[p[i].job], p[i].index, p[i].address);
    }
    mem_free(p);
    return st;
}

static manta_status read_cluster(tf_config *c, json_t *cluster)
{
    const char *key;
    json_t *tasks;

    if (!json_is_object(cluster)) {
        return manta_fail(MANTA_EINVAL,
                          "TF_CONFIG: cluster must be an object from job names to lists of addresses, but is "
                          "%s",
                          kind_of(cluster));
    }
    json_object_foreach(cluster, key, tasks)
    {
        int j = job_of(key);
        if (j < 0) {
            return manta_fail(MANTA_EINVAL,
                              "TF_CONFIG: cluster has the job \"%.40s\"; jobs are chief, worker, ps and "
                              "evaluator",
                              key);
        }
        TRY(read_tasks(c, (tf_job)j, tasks));
    }
    if (c->n[TF_CHIEF] > 1)
        return manta_fail(MANTA_EINVAL, "TF_CONFIG: cluster.chief has %d tasks, there can be one chief",
                          c->n[TF_CHIEF]);
    if (c->n[TF_EVALUATOR] > 1)
        return manta_fail(MANTA_EINVAL,
                          "TF_CONFIG: cluster.evaluator has %d tasks, there can be one evaluator",
                          c->n[TF_EVALUATOR]);
    return check_duplicates(c);
}

/* ---- the task ---- */

/* As Python's int(): numbers are cut, texts are read. */
static manta_status read_index(const json_t *v, int *out)
{
    double x = 0;

    if (!v) return manta_fail(MANTA_EINVAL, "TF_CONFIG: task.index is missing");
    if (json_is_integer(v)) {
        x = (double)json_integer_value(v);
    } else if (json_is_real(v)) {
        x = trunc(json_real_value(v));
    } else if (json_is_boolean(v)) {
        x = json_is_true(v);
    } else if (json_is_string(v)) {
        const char *s = json_string_value(v);
        char *end;
        long n = strtol(s, &end, 10);
        while (*end == ' ' || *end == '\t' || *end == '\n') end++;
        if (end == s || *end) {
            return manta_fail(MANTA_EINVAL, "TF_CONFIG: task.index is \"%.40s\", expected a number", s);
        }
        x = (double)n;
    } else {
        return manta_fail(MANTA_EINVAL, "TF_CONFIG: task.index is %s, expected a number", kind_of(v));
    }
    if (!(x >= 0)) return manta_fail(MANTA_EINVAL, "TF_CONFIG: task.index is %.0f, expected 0 or more", x);
    *out = x > INT_MAX ? INT_MAX : (int)x;
    return MANTA_OK;
}

static manta_status check_task(const tf_config *c)
{
    int n = c->n[c->type];

    if (c->type == TF_EVALUATOR && !n) n = 1; /* it need not be in the cluster it evaluates */
    if (!n) {
        return manta_fail(MANTA_EINVAL, "TF_CONFIG: task.type is \"%s\", but cluster has no such job",
                          names[c->type]);
    }
    if (c->index >= n || (c->n[c->type] && !c->address[c->type][c->index])) {
        return manta_fail(MANTA_EINVAL,
                          "TF_CONFIG: task.index is %d, but cluster.%s has no such task (it has %d, from 0)",
                          c->index, names[c->type], n);
    }
    if (!c->n[TF_WORKER] && !c->n[TF_CHIEF] && c->type != TF_EVALUATOR) {
        return manta_fail(MANTA_EINVAL,
                          "TF_CONFIG: cluster has neither a chief nor a worker, so nobody would train");
    }
    return MANTA_OK;
}

static manta_status read_task(tf_config *c, const json_t *task)
{
    const json_t *type;
    int j;

    if (!task) {
        return manta_fail(MANTA_EINVAL,
                          "TF_CONFIG: there is a cluster but no task: say which one this process is, "
                          "\"task\": {\"type\": \"worker\", \"index\": 0}");
    }
    if (!json_is_object(task))
        return manta_fail(MANTA_EINVAL, "TF_CONFIG: task must be an object, but is %s", kind_of(task));
    type = json_object_get(task, "type");
    if (!type || json_is_null(type)) return manta_fail(MANTA_EINVAL, "TF_CONFIG: task.type is missing");
    if (!json_is_string(type))
        return manta_fail(MANTA_EINVAL, "TF_CONFIG: task.type is %s, expected a text", kind_of(type));
    j = job_of(json_string_value(type));
    if (j < 0) {
        return manta_fail(MANTA_EINVAL,
                          "TF_CONFIG: task.type is \"%.40s\", expected chief, worker, ps or evaluator",
                          json_string_value(type));
    }
    c->type = (tf_job)j;
    TRY(read_index(json_object_get(task, "index"), &c->index));
    return check_task(c);
}

/* ---- the whole ---- */

static manta_status read_root(tf_config *c, json_t *root)
{
    json_t *cluster;

    /* What has no keys at all is, to TensorFlow, a cluster of nobody. */
    if (json_is_array(root) || json_is_string(root)) {
        c->local = true;
        return MANTA_OK;
    }
    if (!json_is_object(root))
        return manta_fail(MANTA_EINVAL, "TF_CONFIG must be an object, but is %s", kind_of(root));
    cluster = json_object_get(root, "cluster");
    if (!cluster || (json_is_object(cluster) && !json_object_size(cluster))) {
        c->local = true;
        return MANTA_OK;
    }
    TRY(read_cluster(c, cluster));
    return read_task(c, json_object_get(root, "task"));
}

manta_status tf_config_parse(const char *text, tf_config *out)
{
    tf_config c = {0};
    json_error_t e;
    json_t *root;
    manta_status st;

    if (!text) {
        *out = (tf_config){.local = true};
        return MANTA_OK;
    }
    if (!text[strspn(text, " \t\r\n")])
        return manta_fail(MANTA_EINVAL, "TF_CONFIG is set but empty; unset it to train in one process");
    root = json_loads(text, JSON_DECODE_ANY, &e);
    if (!root) {
        return manta_fail(MANTA_EINVAL, "TF_CONFIG is not JSON: line %d, column %d: %s", e.line, e.column,
                          e.text);
    }
    st = read_root(&c, root);
    json_decref(root);
    if (st) {
        tf_config_release(&c);
        return st;
    }
    *out = c;
    return MANTA_OK;
}

/* ---- ranks ---- */

int tf_config_ranks(const tf_config *c)
{
    int n = c->n[TF_CHIEF];

    for (int i = 0; i < c->n[TF_WORKER]; i++) n += c->address[TF_WORKER][i] != NULL;
    return n;
}

int tf_config_rank(const tf_config *c)
{
    int rank = c->n[TF_CHIEF];

    if (c->local || c->type == TF_CHIEF) return 0;
    if (c->type != TF_WORKER) return -1;
    for (int i = 0; i < c->index; i++) rank += c->address[TF_WORKER][i] != NULL;
    return rank;
}

void tf_config_task(const tf_config *c, int rank, tf_job *type, int *index)
{
    *type = rank < c->n[TF_CHIEF] ? TF_CHIEF : TF_WORKER;
    *index = 0;
    if (*type == TF_CHIEF) return;
    rank -= c->n[TF_CHIEF];
    for (int i = 0; i < c->n[TF_WORKER]; i++) {
        if (c->address[TF_WORKER][i] && rank-- == 0) *index = i;
    }
}

bool tf_config_is_chief(const tf_config *c)
{
    return tf_config_rank(c) == 0 || c->type == TF_EVALUATOR;
}
