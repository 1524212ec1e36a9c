/* pod.c - a launch in a pod of an indexed Job: one host of several, without a launcher above them. See launcher.h.
 *
 * Each pod has a launcher of its own, for its own ranks. Which pod it is says JOB_COMPLETION_INDEX; the names of the
 * others follow from that of the Job, and Kubernetes gives a pod that comes again the same name and another address. Who
 * is missing the ranks themselves wait for. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "launch/address.h"
#include "launch/launcher.h"
#include "launch/manifest.h"
#include "os/file.h"

enum { KEY_TEXT = 64 };

/* The key of all pods. The Secret's file may belong to another user and be a group's: the pod is nobody else's. */
static manta_status read_key(launcher *l)
{
    const char *path = getenv("MANTA_CLUSTER_KEY");
    char text[KEY_TEXT + 16];
    size_t n;
    bool fine;

    if (!path || !*path)
        return manta_fail(MANTA_EINVAL, "MANTA_CLUSTER_KEY is not set: expected the file of the Job's Secret "
                                        "('manta launch --on k8s --print' says how it is made)");
    TRY(file_read_text(path, text, sizeof text));
    n = strspn(text, "0123456789abcdefABCDEF");
    fine = n == KEY_TEXT && !text[n + strspn(text + n, " \r\n")];
    if (fine) memcpy(l->key, text, KEY_TEXT);
    explicit_bzero(text, sizeof text);
    return fine ? MANTA_OK
                : manta_fail(MANTA_ECORRUPT, "%s has no key: expected %d hexadecimal digits", path, KEY_TEXT);
}

/* The number that `text` is, digits alone, at most nine; -1 for any other text. */
static int whole_number(const char *text)
{
    size_t n = strspn(text, "0123456789");

    return n > 0 && n <= 9 && !text[n] ? (int)strtol(text, NULL, 10) : -1;
}

/* Which pod this is. A Job tells its pods their index, and not how many they are. */
static manta_status read_place(const launcher *l, int *index)
{
    const char *text = getenv("JOB_COMPLETION_INDEX"), *size = getenv("MANTA_WORLD_SIZE");
    int nodes = l->o->nodes, here = text ? whole_number(text) : -1;

    if (!text)
        return manta_fail(MANTA_EINVAL,
                          "--on pod:%.60s: JOB_COMPLETION_INDEX is not set: expected a pod of an "
                          "indexed Job, as 'manta launch --on k8s --print' writes it",
                          l->pod);
    if (here < 0 || here >= nodes)
        return manta_fail(MANTA_EINVAL,
                          "JOB_COMPLETION_INDEX is \"%.60s\": expected a number from 0 to %d, by "
                          "--nodes %d",
                          text, nodes - 1, nodes);
    if (size && *size && whole_number(size) != nodes)
        return manta_fail(MANTA_EINVAL,
                          "MANTA_WORLD_SIZE is \"%.60s\", but --nodes is %d: expected the Job's "
                          "completions in both",
                          size, nodes);
    *index = here;
    return MANTA_OK;
}

manta_status launcher_open_pod(launcher *l)
{
    int index = 0, each = l->o->processes ? l->o->processes : 1;

    if (!manifest_is_name(l->pod))
        return manta_fail(MANTA_EINVAL,
                          "--on pod:%.60s: expected the name of a Job: at most 52 of a to z, 0 "
                          "to 9 and -, from a letter on",
                          l->pod);
    if (l->o->nodes < 1)
        return manta_fail(MANTA_EINVAL, "--on pod:%.60s needs --nodes N, the Job's completions", l->pod);
    TRY(manifest_check_size(l->pod, l->o->nodes, each));
    TRY(read_place(l, &index));
    TRY(read_key(l));
    l->base = index * each;
    /* By this name the pod knows itself (/etc/hosts), before the Service knows it. */
    vec_push(&l->list, (route_host){.name = mem_printf("%s-%d", l->pod, index)});
    return MANTA_OK;
}

json_t *launcher_pod_addresses(const launcher *l)
{
    json_t *out = json_array();

    for (int i = 0; i < l->o->nodes; i++) {
        for (int k = 0; k < l->n_ranks; k++) {
            char *address = mem_printf("%s-%d.%s:%d", l->pod, i, l->pod, ADDRESS_FIRST_PORT + k);
            json_array_append_new(out, json_string(address));
            mem_free(address);
        }
    }
    return out;
}
