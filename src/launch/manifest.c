/* manifest.c - see manifest.h. */
#include "launch/manifest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <manta/version.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "launch/address.h"
#include "launch/route.h"

enum {
    NAME = 52, /* and behind it -1023 in a name of at most 63 characters */
    MOST_PORTS = 1024,
    MOST_RANKS = 4096,
    MOST_CONFIG = 120 * 1024, /* bytes of TF_CONFIG, a variable: Linux allows 128 KiB to each */
    PATIENCE_S = 3600, /* for pods that have no node yet, or whose image is still pulled */
    GRACE_S = 30,
    SPARE_S = 15, /* from the end of the grace to the pod's: for the launch itself to end */
    AGAIN = 6, /* pods that failed for reasons of their own */
    RESUMABLE = 75,
    USAGE = 2
};

/* ---- texts ---- */

void manifest_put_text(buf *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    buf_add_char(out, '"');
    while (*at) {
        size_t n = utf8_length(at);
        uint32_t c = n > 1 ? utf8_character(at, n) : *at;
        if (c == '"' || c == '\\') {
            buf_printf(out, "\\%c", (int)c);
        } else if (c >= ' ' && c < 0x7f) {
            buf_add_char(out, (char)c);
        } else if (c < 0x100) {
            buf_printf(out, "\\x%02x", c);
        } else {
            buf_printf(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        }
        at += n ? n : 1;
    }
    buf_add_char(out, '"');
}

static manta_status check_text(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    for (size_t n; *at; at += n) {
        n = utf8_length(at);
        if (!n)
            return manta_fail(MANTA_EINVAL, "\"%.60s\" is not UTF-8, and nothing else can be in a manifest",
                              text);
    }
    return MANTA_OK;
}

/* A text in which Kubernetes replaces nothing: of $$ it makes $, and leaves what follows. */
static void put_value(buf *out, const char *text)
{
    buf doubled = {0};

    for (; *text; text++) {
        if (*text == '$') buf_add_char(&doubled, '$');
        buf_add_char(&doubled, *text);
    }
    manifest_put_text(out, buf_text(&doubled));
    buf_release(&doubled);
}

/* A line whose text Kubernetes does not look into. */
static void put_plain(buf *out, const char *before, const char *text)
{
    buf_add_text(out, before);
    manifest_put_text(out, text);
    buf_add_char(out, '\n');
}

static void put_line(buf *out, const char *before, const char *value)
{
    buf_add_text(out, before);
    put_value(out, value);
    buf_add_char(out, '\n');
}

/* ---- names ---- */

/* As Kubernetes names most things: a to z, 0 to 9 and -, no - at either end. */
static bool is_label(const char *text, size_t most)
{
    size_t n = strlen(text);

    return n && n <= most && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && text[0] != '-' &&
           text[n - 1] != '-';
}

bool manifest_is_name(const char *text)
{
    return is_label(text, NAME) && !isdigit((unsigned char)*text);
}

/* Secrets and claims may have dots. */
static bool is_object(const char *text)
{
    size_t n = strlen(text);

    return n && n <= 253 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == n &&
           isalnum((unsigned char)text[0]) && isalnum((unsigned char)text[n - 1]) && !strstr(text, "..") &&
           !strstr(text, ".-") && !strstr(text, "-.");
}

/* "500m", "2", "1.5", "16Gi". */
static bool is_quantity(const char *text)
{
    static const char *const units[] = {"", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi"};
    size_t n = strspn(text, "0123456789");

    if (!n) return false;
    if (text[n] == '.' && isdigit((unsigned char)text[n + 1])) n += 1 + strspn(text + n + 1, "0123456789");
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (!strcmp(text + n, units[i])) return true;
    }
    return false;
}

static manta_status refuse_option(const char *option, const char *value, const char *expected)
{
    return manta_fail(MANTA_EINVAL, "--%s \"%.60s\": expected %s", option, value, expected);
}

static manta_status check_names(const manta_launch_options *o)
{
    if (o->job && !manifest_is_name(o->job))
        return refuse_option("job", o->job, "at most 52 of a to z, 0 to 9 and -, from a letter on");
    if (o->space && !is_label(o->space, 63))
        return refuse_option("namespace", o->space, "a namespace: a to z, 0 to 9 and -");
    if (o->secret && !is_object(o->secret))
        return refuse_option("secret", o->secret, "the name of a Secret: a to z, 0 to 9, - and .");
    if (o->environment && !is_object(o->environment))
        return refuse_option("env-from", o->environment, "the name of a Secret: a to z, 0 to 9, - and .");
    if (o->cpus && !is_quantity(o->cpus))
        return refuse_option("cpus", o->cpus, "a number such as 4 or 500m, as Kubernetes writes it");
    if (o->memory && (!is_quantity(o->memory) || strchr(o->memory, 'm')))
        return refuse_option("memory", o->memory, "a number such as 16Gi, as Kubernetes writes it");
    return MANTA_OK;
}

/* Whether the value of a variable with this name is probably nothing to be read by everybody who reads Jobs. */
static bool is_secret(const char *name)
{
    static const char *const words[] = {"SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "KEY"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        for (const char *at = name; *at; at++) {
            if (!strncasecmp(at, words[i], strlen(words[i]))) return true;
        }
    }
    return false;
}

static bool is_variable(const char *name)
{
    return !isdigit((unsigned char)*name) &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}

/* Whether pods are told this by the manifest or by Kubernetes. */
static bool is_given(const char *name)
{
    static const char *const names[] = {"MANTA_WORLD_SIZE", "MANTA_STORAGE", "JOB_COMPLETION_INDEX",
                                        "TF_CONFIG"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(name, names[i])) return true;
    }
    return false;
}

/* Whether the list has the name before this place. `at` is in `list`, whose commas before it are NULs. */
static bool was_named(const char *list, const char *at)
{
    for (const char *name = list; name < at; name += strlen(name) + 1) {
        if (!strcmp(name, at)) return true;
    }
    return false;
}

static manta_status check_variables(const char *list)
{
    char *names = mem_strdup(list), *rest = NULL;
    manta_status st = MANTA_OK;

    for (char *name = strtok_r(names, ",", &rest); name && !st; name = strtok_r(NULL, ",", &rest)) {
        if (!is_variable(name))
            st = refuse_option("export", name, "names of variables: letters, digits and _");
        else if (was_named(names, name))
            st = refuse_option("export", name, "each variable once");
        else if (is_given(name))
            st = refuse_option("export", name, "variables that pods are not given anyway");
        else if (is_secret(name))
            st =
                manta_fail(MANTA_EINVAL,
                           "--export %.60s: what is called like a secret would be in the manifest for all to "
                           "read; put it into a Secret and name that with --env-from",
                           name);
        else if (getenv(name))
            st = check_text(getenv(name));
    }
    mem_free(names);
    return st;
}

/* Whether a folder is that of the key, above it, or below it. */
static bool is_key_folder(const char *path)
{
    size_t n = strlen(path), key = strlen(MANIFEST_KEY_FOLDER);

    while (n > 1 && path[n - 1] == '/') n--;
    if (strncmp(path, MANIFEST_KEY_FOLDER, n < key ? n : key)) return false;
    return n == key || (n < key ? MANIFEST_KEY_FOLDER[n] : path[key]) == '/';
}

/* "CLAIM:PATH". *path: borrowed from the text. *name: owned. */
static manta_status split_claim(const char *text, char **name, const char **path)
{
    const char *colon = strchr(text, ':');

    *name = NULL;
    if (colon) *name = mem_strndup(text, (size_t)(colon - text));
    if (colon && is_object(*name) && colon[1] == '/' && colon[2] && !strchr(colon + 1, ':') &&
        !is_key_folder(colon + 1)) {
        *path = colon + 1;
        return MANTA_OK;
    }
    mem_free(*name);
    *name = NULL;
    return refuse_option(
        "claim", text,
        "CLAIM:PATH, the name of a PersistentVolumeClaim and a folder below /, in which nothing is "
        "that pods need");
}

/* ---- the program ---- */

static bool is_training(const char *const *argv)
{
    return !strcmp(argv[0], "train") || (!strcmp(argv[0], "manta") && argv[1] && !strcmp(argv[1], "train"));
}

/* Whether an option is among the words, also as --option=value. */
static bool has_option(const char *const *argv, const char *option)
{
    size_t n = strlen(option);

    for (; *argv; argv++) {
        if (!strncmp(*argv, option, n) && (!(*argv)[n] || (*argv)[n] == '=')) return true;
    }
    return false;
}

static bool keeps_run(const char *const *argv)
{
    return is_training(argv) && (has_option(argv, "--name") || has_option(argv, "--run-dir"));
}

static bool has_remote_storage(const char *const *argv)
{
    for (; *argv; argv++) {
        if (strstr(*argv, "s3://")) return true;
    }
    return false;
}

/* ---- the text ---- */

static const char *name_of(const manta_launch_options *o)
{
    return o->job ? o->job : "manta";
}

static void put_secret_name(const manta_launch_options *o, buf *out)
{
    if (o->secret)
        buf_add_text(out, o->secret);
    else
        buf_printf(out, "%s-key", name_of(o));
}

static void put_remarks(const manta_launch_options *o, buf *out)
{
    buf_printf(out,
               "# Written by Manta %s for Kubernetes 1.26 or later. All who read Jobs can read the words of "
               "the program.\n",
               MANTA_VERSION_TEXT);
    buf_add_text(out, "# The key by which the pods know each other goes from a pipe into a Secret, once:\n#\n"
                      "#   head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' | kubectl create secret "
                      "generic ");
    put_secret_name(o, out);
    if (o->space) buf_printf(out, " --namespace=%s", o->space);
    buf_printf(out,
               " --from-file=key=/dev/stdin\n#\n# Then: kubectl apply -f FILE; kubectl logs -f "
               "job/%s%s%s; the end: kubectl delete -f FILE\n",
               name_of(o), o->space ? " --namespace=" : "", o->space ? o->space : "");
    if (is_training(o->argv) && !keeps_run(o->argv)) {
        buf_add_text(out,
                     "#\n# The training keeps no run (--name or --run-dir): when all pods have ended before "
                     "it is done, it begins anew.\n");
    } else if (is_training(o->argv) && !o->claim && !has_remote_storage(o->argv)) {
        buf_add_text(out,
                     "#\n# The run lies in the first pod and goes with it: --claim or --storage s3:// would "
                     "keep it.\n");
    }
}

static void put_metadata(const manta_launch_options *o, const char *margin, bool named, buf *out)
{
    buf_printf(out, "%smetadata:\n", margin);
    if (named) buf_printf(out, "%s  name: \"%s\"\n", margin, name_of(o));
    if (named && o->space) buf_printf(out, "%s  namespace: \"%s\"\n", margin, o->space);
    buf_printf(
        out,
        "%s  labels:\n%s    app.kubernetes.io/name: \"manta\"\n%s    app.kubernetes.io/instance: \"%s\"\n",
        margin, margin, margin, name_of(o));
}

static int processes_of(const manta_launch_options *o)
{
    return o->processes ? o->processes : 1;
}

static void put_service(const manta_launch_options *o, buf *out)
{
    buf_add_text(out, "apiVersion: v1\nkind: Service\n");
    put_metadata(o, "", true, out);
    /* Pods need each other's names in order to become anything. */
    buf_printf(out,
               "spec:\n  clusterIP: \"None\"\n  publishNotReadyAddresses: true\n  selector:\n"
               "    app.kubernetes.io/name: \"manta\"\n    app.kubernetes.io/instance: \"%s\"\n  ports:\n",
               name_of(o));
    for (int i = 0; i < processes_of(o); i++)
        buf_printf(out, "    - name: \"rank-%d\"\n      port: %d\n", i, ADDRESS_FIRST_PORT + i);
}

/* What a failed pod means. Pods of which Kubernetes wanted the node, and those that were asked to end and have written
 * a checkpoint, come again for nothing; wrong usage stays wrong. */
static void put_failure_policy(const manta_launch_options *o, buf *out)
{
    buf_add_text(out, "  podFailurePolicy:\n    rules:\n"
                      "      - action: Ignore\n        onPodConditions:\n"
                      "          - type: DisruptionTarget\n            status: \"True\"\n");
    if (is_training(o->argv)) /* what the status of another program means only its author knows */
        buf_printf(out,
                   "      - action: Ignore\n        onExitCodes:\n          containerName: manta\n"
                   "          operator: In\n          values: [%d]\n"
                   "      - action: FailJob\n        onExitCodes:\n          containerName: manta\n"
                   "          operator: In\n          values: [%d]\n",
                   RESUMABLE, USAGE);
}

static void put_words(const manta_launch_options *o, int64_t grace_s, buf *out)
{
    char *on = mem_printf("pod:%s", name_of(o)), number[32];

    put_line(out, "          command:\n            - ", o->program ? o->program : "manta");
    buf_add_text(out, "          args:\n            - \"launch\"\n            - \"--on\"\n");
    put_line(out, "            - ", on);
    buf_printf(out, "            - \"--nodes\"\n            - \"%d\"\n", o->nodes ? o->nodes : 1);
    buf_printf(out, "            - \"--processes\"\n            - \"%d\"\n", processes_of(o));
    buf_printf(out, "            - \"--grace\"\n            - \"%lld\"\n", (long long)grace_s);
    if (o->max_restarts) {
        snprintf(number, sizeof number, "%d", o->max_restarts < 0 ? 0 : o->max_restarts);
        buf_printf(out, "            - \"--max-restarts\"\n            - \"%s\"\n", number);
    }
    if (o->plain) buf_add_text(out, "            - \"--no-prefix\"\n");
    buf_add_text(out, "            - \"--\"\n");
    for (const char *const *w = o->argv; *w; w++) put_line(out, "            - ", *w);
    if (keeps_run(o->argv) && !has_option(o->argv, "--resume"))
        buf_add_text(out, "            - \"--resume\"\n"); /* begins when there is nothing to go on with */
    if (is_training(o->argv) && !has_option(o->argv, "--cluster-timeout"))
        buf_printf(out, "            - \"--cluster-timeout\"\n            - \"%d\"\n", PATIENCE_S);
    mem_free(on);
}

static void put_environment(const manta_launch_options *o, const char *claimed, buf *out)
{
    char *names = mem_strdup(o->variables ? o->variables : ""), *rest = NULL;

    buf_printf(out,
               "          env:\n            - name: MANTA_WORLD_SIZE\n              value: \"%d\"\n"
               "            - name: MANTA_CLUSTER_KEY\n              value: \"" MANIFEST_KEY_FOLDER
               "/key\"\n",
               o->nodes ? o->nodes : 1);
    if (claimed) put_line(out, "            - name: MANTA_STORAGE\n              value: ", claimed);
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        const char *value = getenv(name);
        if (!value) continue;
        buf_printf(out, "            - name: \"%s\"\n", name);
        put_line(out, "              value: ", value);
    }
    if (o->environment)
        buf_printf(out, "          envFrom:\n            - secretRef:\n                name: \"%s\"\n",
                   o->environment);
    mem_free(names);
}

static void put_resources(const manta_launch_options *o, buf *out)
{
    static const char *const kinds[] = {"requests", "limits"};

    if (!o->cpus && !o->memory) return;
    buf_add_text(out, "          resources:\n");
    for (int i = 0; i < 2; i++) {
        buf_printf(out, "            %s:\n", kinds[i]);
        if (o->cpus) buf_printf(out, "              cpu: \"%s\"\n", o->cpus);
        if (o->memory) buf_printf(out, "              memory: \"%s\"\n", o->memory);
    }
}

static void put_container(const manta_launch_options *o, int64_t grace_s, const char *path, buf *out)
{
    buf_add_text(out, "      containers:\n        - name: manta\n");
    put_plain(out, "          image: ", o->image);
    put_words(o, grace_s, out);
    if (o->folder) put_plain(out, "          workingDir: ", o->folder);
    put_environment(o, path, out);
    buf_add_text(out, "          ports:\n");
    for (int i = 0; i < processes_of(o); i++)
        buf_printf(out, "            - containerPort: %d\n", ADDRESS_FIRST_PORT + i);
    put_resources(o, out);
    if (o->user)
        buf_add_text(out, "          securityContext:\n            allowPrivilegeEscalation: false\n"
                          "            capabilities:\n              drop: [\"ALL\"]\n");
    buf_add_text(out, "          volumeMounts:\n            - name: key\n              mountPath: "
                      "\"" MANIFEST_KEY_FOLDER "\"\n              readOnly: true\n");
    if (path) put_plain(out, "            - name: claim\n              mountPath: ", path);
}

static void put_volumes(const manta_launch_options *o, const char *claim, buf *out)
{
    buf_add_text(out, "      volumes:\n        - name: key\n          secret:\n            secretName: \"");
    put_secret_name(o, out);
    /* With --user the file is the group's of that user; without, nobody here knows who the image runs as. */
    buf_printf(out, "\"\n            defaultMode: %s\n", o->user ? "0400" : "0444");
    if (claim)
        buf_printf(out,
                   "        - name: claim\n          persistentVolumeClaim:\n            claimName: \"%s\"\n",
                   claim);
}

static void put_pod(const manta_launch_options *o, int64_t grace_s, const char *claim, const char *path,
                    buf *out)
{
    buf_add_text(out, "  template:\n");
    put_metadata(o, "    ", false, out);
    buf_printf(out,
               "    spec:\n      subdomain: \"%s\"\n      restartPolicy: Never\n"
               "      terminationGracePeriodSeconds: %lld\n"
               "      enableServiceLinks: false\n      automountServiceAccountToken: false\n",
               name_of(o), (long long)(grace_s + SPARE_S));
    buf_printf(out,
               "      topologySpreadConstraints:\n        - maxSkew: 1\n"
               "          topologyKey: kubernetes.io/hostname\n          whenUnsatisfiable: ScheduleAnyway\n"
               "          labelSelector:\n            matchLabels:\n"
               "              app.kubernetes.io/instance: \"%s\"\n",
               name_of(o));
    if (o->user)
        buf_printf(out,
                   "      securityContext:\n        runAsNonRoot: true\n        runAsUser: %d\n"
                   "        runAsGroup: %d\n        fsGroup: %d\n        seccompProfile:\n"
                   "          type: RuntimeDefault\n",
                   o->user, o->user, o->user);
    put_container(o, grace_s, path, out);
    put_volumes(o, claim, out);
}

manta_status manifest_check_size(const char *job, int nodes, int each)
{
    size_t entry = 2 * strlen(job) + sizeof "\"-1023.:20000\",";

    if (nodes < 1 || nodes > MANIFEST_MOST_NODES || each > MOST_PORTS || each > MOST_RANKS / nodes)
        return manta_fail(
            MANTA_EINVAL,
            "--nodes %d with %d processes each: at most %d pods, %d processes each and %d in all "
            "are possible",
            nodes, each, MANIFEST_MOST_NODES, MOST_PORTS, MOST_RANKS);
    if (entry * (size_t)nodes * (size_t)each > MOST_CONFIG)
        return manta_fail(MANTA_EINVAL,
                          "the addresses of %d ranks of Job %.60s do not fit into one variable: expected at "
                          "most %zu ranks, or a shorter name",
                          nodes * each, job, MOST_CONFIG / entry);
    return MANTA_OK;
}

static manta_status check_options(const manta_launch_options *o)
{
    if (!o->image || !*o->image)
        return manta_fail(MANTA_EINVAL, "--on k8s needs --image IMAGE, in which manta is");
    TRY(manifest_check_size(name_of(o), o->nodes ? o->nodes : 1, processes_of(o)));
    if (o->folder && *o->folder != '/')
        return refuse_option("folder", o->folder, "a folder of the image, from / on");
    if (o->variables) TRY(check_variables(o->variables));
    return check_names(o);
}

manta_status manifest_put(const manta_launch_options *o, buf *out)
{
    int64_t grace_s = o->grace_ms ? o->grace_ms / 1000 : GRACE_S;
    int nodes = o->nodes ? o->nodes : 1;
    char *claim = NULL;
    const char *path = NULL;

    TRY(check_options(o));
    if (o->claim) TRY(split_claim(o->claim, &claim, &path));
    put_remarks(o, out);
    put_service(o, out);
    buf_add_text(out, "---\napiVersion: batch/v1\nkind: Job\n");
    put_metadata(o, "", true, out);
    buf_printf(out,
               "spec:\n  completionMode: Indexed\n  completions: %d\n  parallelism: %d\n  backoffLimit: %d\n",
               nodes, nodes, AGAIN);
    put_failure_policy(o, out);
    put_pod(o, grace_s, claim, path, out);
    mem_free(claim);
    return MANTA_OK;
}

/* What is to go into a manifest must be text. */
static manta_status check_texts(const manta_launch_options *o)
{
    const char *const values[] = {o->image, o->program, o->folder, o->claim};

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i]) TRY(check_text(values[i]));
    }
    for (const char *const *w = o->argv; *w; w++) TRY(check_text(*w));
    return MANTA_OK;
}

manta_status manta_launch_manifest(const manta_launch_options *launch, char **out)
{
    buf b = {0};
    manta_status st;

    if (!launch)
        return manta_fail(MANTA_EINVAL, "manta_launch_manifest: launch is NULL, expected what to start");
    if (!out) return manta_fail(MANTA_EINVAL, "manta_launch_manifest: out is NULL, expected a place");
    if (!launch->argv || !launch->argv[0] || !*launch->argv[0])
        return manta_fail(MANTA_EINVAL, "there is no program: expected one, and its arguments, behind --");
    st = check_texts(launch);
    if (!st) st = manifest_put(launch, &b);
    if (!st && !(*out = strdup(buf_text(&b)))) st = manta_fail(MANTA_ENOMEM, "no memory for a manifest");
    buf_release(&b);
    return st;
}
