/* concurrency.c - see concurrency.h. */
#include "task/concurrency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"

#define MOST_PLACES 1000 /* of one group: each is a thread */

typedef struct places {
    char name[64];
    int most, running;
} places;

struct concurrency {
    VEC(places) groups; /* the first has no name */
    MAP(int) methods; /* the number of a method's group */
};

static int find_group(const concurrency *c, const char *name)
{
    for (size_t i = 0; i < c->groups.n; i++)
        if (!strcmp(c->groups.at[i].name, name)) return (int)i;
    return -1;
}

/* The part of the text up to `end`, as name and value; *at moves behind the comma. */
typedef struct pair {
    char name[64], value[64];
} pair;

static bool copy_part(char out[64], const char *from, size_t n)
{
    if (n == 0 || n > 63) return false;
    memcpy(out, from, n);
    out[n] = 0;
    return true;
}

static manta_status take_pair(const char **at, const char *end, pair *out)
{
    size_t n = strcspn(*at, ",;"), before = strcspn(*at, "=");

    if (*at + n > end || before >= n || !copy_part(out->name, *at, before) ||
        !copy_part(out->value, *at + before + 1, n - before - 1))
        return manta_fail(MANTA_EINVAL,
                          "concurrency groups: \"%.80s\" is no name=value with 1 to 63 bytes on each side",
                          *at);
    *at += n + (*at + n < end && (*at)[n] == ',');
    return MANTA_OK;
}

static manta_status add_group(concurrency *c, const pair *p)
{
    char *rest;
    long most = strtol(p->value, &rest, 10);
    places g = {.most = (int)most};

    if (*rest || most < 1 || most > MOST_PLACES)
        return manta_fail(MANTA_EINVAL, "concurrency group %s lets %s calls run at once, expected 1 to %d",
                          p->name, p->value, MOST_PLACES);
    if (find_group(c, p->name) >= 0)
        return manta_fail(MANTA_EINVAL, "concurrency group %s is named twice", p->name);
    if (c->groups.n > CONCURRENCY_GROUPS)
        return manta_fail(MANTA_EINVAL, "an actor has more than %d concurrency groups", CONCURRENCY_GROUPS);
    memcpy(g.name, p->name, sizeof g.name);
    vec_push(&c->groups, g);
    return MANTA_OK;
}

static manta_status add_method(concurrency *c, const pair *p)
{
    int k = find_group(c, p->value);

    if (k < 0)
        return manta_fail(MANTA_EINVAL,
                          "method %s is to run in the concurrency group %s, which the actor does not have",
                          p->name, p->value);
    *map_put(&c->methods, p->name) = k;
    return MANTA_OK;
}

static manta_status read_text(concurrency *c, const char *text)
{
    const char *end = text + strcspn(text, ";"), *at = text;
    pair p;

    while (at < end) {
        TRY(take_pair(&at, end, &p));
        TRY(add_group(c, &p));
    }
    at = *end ? end + 1 : end;
    end = at + strlen(at);
    while (at < end) {
        TRY(take_pair(&at, end, &p));
        TRY(add_method(c, &p));
    }
    return MANTA_OK;
}

manta_status concurrency_new(const char *text, int most, concurrency **out)
{
    concurrency *c = mem_new(sizeof *c);

    vec_push(&c->groups, ((places){.most = most}));
    manta_status st = read_text(c, text ? text : "");
    if (st)
        concurrency_free(c);
    else
        *out = c;
    return st;
}

void concurrency_free(concurrency *c)
{
    if (!c) return;
    vec_release(&c->groups);
    map_release(&c->methods);
    mem_free(c);
}

manta_status concurrency_join(const char *groups, const char *methods, char text[CONCURRENCY_TEXT])
{
    concurrency *c;
    int n = snprintf(text, CONCURRENCY_TEXT, "%s%s%s", groups ? groups : "", methods ? ";" : "",
                     methods ? methods : "");

    if (n >= CONCURRENCY_TEXT)
        return manta_fail(MANTA_EINVAL, "the concurrency groups of an actor take %d bytes, at most %d fit", n,
                          CONCURRENCY_TEXT - 1);
    TRY(concurrency_new(text, 1, &c));
    concurrency_free(c);
    return MANTA_OK;
}

int concurrency_find(const concurrency *c, const char *group, const char *method)
{
    if (group && group[0]) return find_group(c, group);
    const int *known = map_find(&c->methods, method);
    return known ? *known : 0;
}

const char *concurrency_name(const concurrency *c, int group)
{
    return c->groups.at[group].name;
}

int concurrency_total(const concurrency *c)
{
    int total = 0;

    for (size_t i = 0; i < c->groups.n; i++) total += c->groups.at[i].most;
    return total;
}

bool concurrency_is_grouped(const concurrency *c)
{
    return c->groups.n > 1;
}

bool concurrency_has_room(const concurrency *c, int group)
{
    return c->groups.at[group].running < c->groups.at[group].most;
}

void concurrency_enter(concurrency *c, int group)
{
    c->groups.at[group].running++;
}

void concurrency_leave(concurrency *c, int group)
{
    c->groups.at[group].running--;
}
