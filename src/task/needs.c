/* needs.c - what a call asks for: from the options to amounts of resources. The
 * lock is held. */
#include "task/needs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "task/group_link.h"
#include "task/proto.h"
#include "task/runtime.h"
#include "task/value.h"

#define MOST             1e15 /* bytes included */
#define MOST_ENVIRONMENT (32 << 10) /* bytes of the text, with its end */

static int64_t amount_units(double x)
{
    return (int64_t)(x * SCHED_UNIT + 0.5);
}

/* The number of the resource of that name; -1: the node has none. */
static int resource_find(const char *name, size_t n)
{
    for (int i = SCHED_NAMED; i < SCHED_RESOURCES; i++)
        if (strlen(rt->names[i]) == n && n > 0 && !strncmp(rt->names[i], name, n)) return i;
    return -1;
}

/* Adds "name=amount,name=amount" to the amounts. */
static manta_status parse_resources(const char *text, sched_shape *out)
{
    while (text && *text) {
        const char *eq = strchr(text, '=');
        char *end = NULL;
        if (!eq) return manta_fail(MANTA_EINVAL, "resources \"%s\": name=amount is expected", text);
        double x = strtod(eq + 1, &end);
        if (end == eq + 1 || (*end && *end != ',') || !(x >= 0) || x > MOST)
            return manta_fail(
                MANTA_EINVAL,
                "resources \"%s\": what follows the = is no amount, expected a number from 0 to 1e15", text);
        size_t n = (size_t)(eq - text);
        for (int i = 0; i < SCHED_NAMED; i++)
            if (strlen(rt->names[i]) == n && !strncmp(rt->names[i], text, n))
                return manta_fail(MANTA_EINVAL, "resources \"%s\": %s has an option of its own", text,
                                  rt->names[i]);
        int found = resource_find(text, n);
        if (found < 0)
            return manta_fail(MANTA_EUNSUPPORTED, "it can never run: no node has any \"%.*s\"", (int)n, text);
        out->amount[found] += amount_units(x);
        text = *end ? end + 1 : end;
    }
    return MANTA_OK;
}

manta_status needs_amounts(double cpus, double gpus, uint64_t memory, const char *resources, sched_shape *out)
{
    if (!(cpus >= 0 && cpus < 1e6) || !(gpus >= 0 && gpus < 1e6) || (double)memory > MOST / 2)
        return manta_fail(MANTA_EINVAL,
                          "%g cores, %g gpus and %llu bytes are asked for, expected 0 to 1e6 of the first "
                          "two and fewer than 5e14 bytes",
                          cpus, gpus, (unsigned long long)memory);
    if (gpus > 1 && gpus != (double)(int64_t)gpus)
        return manta_fail(MANTA_EINVAL, "%g gpus are asked for, expected a part of one, or whole ones", gpus);
    out->amount[0] = amount_units(cpus);
    out->amount[1] = amount_units(gpus);
    out->amount[2] = (int64_t)memory * SCHED_UNIT;
    return parse_resources(resources, out);
}

manta_status needs_feasible(const sched_shape *total, const char *whose, const sched_shape *asked)
{
    int missing;

    if (sched_feasible(total, asked, &missing)) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED, "it can never run: it asks for %.15g %s, and %s has %.15g",
                      (double)(asked->amount[missing] + (missing == 0 ? asked->place : 0)) / SCHED_UNIT,
                      rt->names[missing], whose, (double)total->amount[missing] / SCHED_UNIT);
}

/* How often something is tried again: a number, none, or without end. */
static manta_status needs_count(const char *field, int v)
{
    if (v >= MANTA_UNLIMITED) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%s is %d, expected 0 or more, MANTA_NONE or MANTA_UNLIMITED", field, v);
}

/* Finds the number of an environment: the daemon is asked once, and the lock given away for that. */
static manta_status find_environment(const char *text, uint64_t *out)
{
    reply r;

    *out = 0;
    if (!text || !text[0] || rt->is_local) return MANTA_OK;
    if (strlen(text) >= MOST_ENVIRONMENT)
        return manta_fail(MANTA_EINVAL, "environment has %zu bytes, expected fewer than %d", strlen(text),
                          MOST_ENVIRONMENT);
    const uint64_t *known = map_find(&rt->environments, text);
    if (known) {
        *out = *known;
        return MANTA_OK;
    }
    if (rt->is_dead) return failure_raise(rt->death);
    uint64_t request = rt_request_begin(PROTO_ENVIRONMENT);
    wire_put_bytes(&rt->out, text, strlen(text) + 1);
    TRY(rt_request(request, &r));
    *out = r.id;
    *map_put(&rt->environments, text) = r.id;
    return MANTA_OK;
}

/* As shape_of(), whatever the options say of what can never run. */
static manta_status shape_that_runs(const manta_task_options *o, bool actor, sched_shape *out,
                                    manta_failure_kind *kind)
{
    *kind = MANTA_FAILURE_SUBMIT;
    if (o->num_cpus < 0 && o->num_cpus != MANTA_NONE)
        return manta_fail(MANTA_EINVAL, "num_cpus is %g, expected 0 or more, or MANTA_NONE", o->num_cpus);
    TRY(needs_count("max_retries", o->max_retries));
    TRY(needs_count("max_restarts", o->max_restarts));
    TRY(needs_count("max_task_retries", o->max_task_retries));
    double cpus = o->num_cpus == 0 ? (actor ? 0 : 1) : o->num_cpus < 0 ? 0 : o->num_cpus;
    *out = (sched_shape){0};
    if (!(o->place_cpus >= 0 && o->place_cpus < 1e6))
        return manta_fail(MANTA_EINVAL, "place_cpus is %g, expected 0 to 1e6", o->place_cpus);
    if (actor) out->place = amount_units(o->place_cpus);
    manta_status st = needs_amounts(cpus, o->num_gpus, o->memory, o->resources, out);
    if (st == MANTA_EUNSUPPORTED) out->amount[0] = SCHED_NEVER; /* no amount stands for it */
    if (st == MANTA_EUNSUPPORTED) *kind = MANTA_FAILURE_IMPOSSIBLE;
    if (st) return st;
    TRY(find_environment(o->environment, &out->environment));
    if (o->node && o->node != rt->node) {
        *kind = MANTA_FAILURE_IMPOSSIBLE;
        out->amount[0] = SCHED_NEVER;
        return manta_fail(MANTA_EUNSUPPORTED, "it can never run: there is no node %016llx",
                          (unsigned long long)o->node);
    }
    if (o->placement_group.id) return group_shape(o->placement_group, o->bundle, out, kind);
    *kind = MANTA_FAILURE_IMPOSSIBLE;
    return needs_feasible(&rt->total, "the node", out);
}

manta_status shape_of(const manta_task_options *o, bool actor, sched_shape *out, manta_failure_kind *kind)
{
    static const manta_task_options none;

    if (!o) o = &none;
    manta_status st = shape_that_runs(o, actor, out, kind);
    if (st != MANTA_EUNSUPPORTED || !o->wait_infeasible || rt->is_local || out->group) return st;
    log_warn("something waits for what the node does not have", LOG_STR("why", manta_error_text()));
    return MANTA_OK;
}

/* ---- amounts for the program ---- */

void amounts_text(const sched_shape *s, char *text, size_t size)
{
    size_t at = 0;

    text[0] = 0;
    for (int i = 0; i < SCHED_RESOURCES && at < size; i++)
        if (s->amount[i])
            at += (size_t)snprintf(text + at, size - at, "%s%s=%.15g", at ? "," : "", rt->names[i],
                                   (double)s->amount[i] / SCHED_UNIT);
}

void info_amounts(const sched_shape *total, const sched_shape *left, manta_node_info *out)
{
    for (int i = 0; i < SCHED_RESOURCES && rt->names[i][0]; i++) {
        manta_resource *to = &out->resources[out->n_resources++];
        memcpy(to->name, rt->names[i], sizeof to->name);
        to->total = (double)total->amount[i] / SCHED_UNIT;
        to->available = (double)left->amount[i] / SCHED_UNIT;
    }
    out->cpus = out->resources[0].total;
    out->gpus = out->resources[1].total;
    out->free_cpus = out->resources[0].available;
    out->free_gpus = out->resources[1].available;
    out->node = rt->node;
}
