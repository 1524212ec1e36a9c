/* s3_lease.c - see s3_lease.h.
 *
 * Threads: `all_lock` guards the list of leases; `lock` of a lease what stands below it. A child
 * that was forked has no part in the leases of its parent: its pid differs. */
#include "train/storage/s3_lease.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/file.h"
#include "os/proc.h"
#include "os/sys.h"
#include "os/thread.h"
#include "train/storage/s3_key.h"
#include "train/storage/storage_s3.h"
#include "web/s3_call.h"

enum {
    LEASE_S = 30,
    LEASE_MOST_S = 3600,
    SLACK_S = 2,
    TRIES = 5,
    TEXT_MOST = 4096,
    SCOPE = 120,
    PROBED = 16
};

struct s3_lease {
    char *path;
    s3_place place;
    size_t folder_n; /* bytes of its key up to the last "/" and with it: what it guards */
    pid_t owner;
    int lease_s;
    thread_id thread;
    s3_lease *next; /* under all_lock */

    mutex lock;
    cond changed;
    bool leave;
    bool lost; /* another has it */
    int64_t held_until; /* of lease_now_ns() */
    int64_t count;
    char *nonce;
    char etag[S3_ETAG];
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static s3_lease *all;

static int lease_seconds(void)
{
    const char *text = getenv("MANTA_STORAGE_LEASE_S");
    long s = text ? strtol(text, NULL, 10) : 0;

    return s > 0 && s <= LEASE_MOST_S ? (int)s : LEASE_S;
}

/* A clock that goes on while the machine sleeps, as the server's does. */
static int64_t lease_now_ns(void)
{
    struct timespec t;

    if (clock_gettime(CLOCK_BOOTTIME, &t)) return clock_now_ns();
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

bool s3_lease_unlocked(void)
{
    const char *text = getenv("MANTA_STORAGE_UNLOCKED");

    return text && !strcmp(text, "1");
}

char *s3_lease_nonce(void)
{
    uint64_t r[2] = {(uint64_t)clock_wall_ns(), (uint64_t)clock_now_ns()};

    (void)!getrandom(r, sizeof r, 0); /* without it the time has to do */
    return mem_printf("%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
}

/* ---- who ---- */

/* The space that process numbers of here are of: this boot and this name space. False: not known, so that
 * nobody can be told to be of here. */
static bool own_scope(char out[SCOPE])
{
    char boot[64] = "";
    struct stat s = {0};

    if (file_read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot)) boot[0] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
    if (os->stat("/proc/self/ns/pid", &s)) s.st_ino = 0;
    snprintf(out, SCOPE, "%s/%llu", boot, (unsigned long long)s.st_ino);
    return *boot && s.st_ino;
}

/* When a process began, in ticks since boot; 0: not known. */
static long start_of(pid_t pid)
{
    char path[64], text[1024];

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    return file_read_text(path, text, sizeof text) ? 0 : proc_parse_stat(text, 22);
}

/* What the object says. */
typedef struct claim {
    char host[80], scope[SCOPE], nonce[40];
    long pid, start;
    int lease_s;
    bool released;
} claim;

static bool parse_claim(const char *text, size_t n, claim *out)
{
    json_error_t why;
    json_t *o = json_loadb(text, n, 0, &why);
    const char *host = json_string_value(json_object_get(o, "host"));
    const char *scope = json_string_value(json_object_get(o, "scope"));
    const char *nonce = json_string_value(json_object_get(o, "nonce"));
    bool fine = host && scope && nonce;

    *out = (claim){.pid = (long)json_integer_value(json_object_get(o, "pid")),
                   .start = (long)json_integer_value(json_object_get(o, "start")),
                   .lease_s = (int)json_integer_value(json_object_get(o, "lease_s")),
                   .released = json_is_true(json_object_get(o, "released"))};
    if (fine) snprintf(out->host, sizeof out->host, "%s", host);
    if (fine) snprintf(out->scope, sizeof out->scope, "%s", scope);
    if (fine) snprintf(out->nonce, sizeof out->nonce, "%s", nonce);
    json_decref(o);
    return fine && out->lease_s > 0 && out->lease_s <= LEASE_MOST_S;
}

static bool is_of_here(const claim *c)
{
    char scope[SCOPE];

    return own_scope(scope) && c->pid > 0 && c->pid <= INT_MAX && !strcmp(scope, c->scope);
}

static bool is_gone(const claim *c)
{
    long start;

    if (!is_of_here(c)) return false;
    if (proc_ended((pid_t)c->pid)) return true;
    start = start_of((pid_t)c->pid);
    return start && c->start && start != c->start; /* another that has its number */
}

/* Seconds since the last renewal, by the server's clock; -1: not told. */
static int64_t age_s(const s3_object *about)
{
    if (about->now_ns < 0 || about->changed_ns < 0) return -1;
    return (about->now_ns - about->changed_ns) / 1000000000;
}

/* What the lock is now. ENOENT: there is none. */
static manta_status read_claim(const s3_place *p, claim *out, s3_object *about, bool *free)
{
    char text[TEXT_MOST];
    size_t n = 0;

    TRY(s3_get(p, 0, text, sizeof text, &n, about));
    *free = !parse_claim(text, n, out)
                ? age_s(about) > LEASE_MOST_S
                : out->released || is_gone(out) || age_s(about) > out->lease_s + SLACK_S;
    return MANTA_OK;
}

static char *claim_text(const s3_lease *l, bool released)
{
    char host[80] = "", scope[SCOPE];
    json_t *o;
    char *text;

    if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "unknown");
    (void)own_scope(scope);
    o = json_pack("{s:s, s:i, s:s, s:I, s:s, s:I, s:i, s:b}", "host", host, "pid", (int)l->owner, "scope",
                  scope, "start", (json_int_t)start_of(l->owner), "nonce", l->nonce, "count",
                  (json_int_t)l->count, "lease_s", l->lease_s, "released", released);
    text = o ? json_dumps(o, 0) : NULL;
    json_decref(o);
    if (!text) abort(); /* small control memory */
    return text;
}

/* ---- the probe ---- */

static struct {
    pthread_mutex_t lock;
    int n;
    char *bucket[PROBED];
} probed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool was_probed(const char *bucket, bool add)
{
    bool there = false;

    pthread_mutex_lock(&probed.lock);
    for (int i = 0; i < probed.n; i++) there |= !strcmp(probed.bucket[i], bucket);
    if (!there && add && probed.n < PROBED) probed.bucket[probed.n++] = strdup(bucket);
    pthread_mutex_unlock(&probed.lock);
    return there;
}

static manta_status refuse_server(const s3_place *p, const char *what)
{
    return manta_fail(
        MANTA_EUNSUPPORTED,
        "s3://%s: this server %s, so two runs could write to one place; expected one that knows "
        "If-None-Match and If-Match of PUT, or MANTA_STORAGE_UNLOCKED=1 when nobody else "
        "uses the place",
        p->bucket, what);
}

static bool not_known(manta_status st)
{
    return st == MANTA_EUNSUPPORTED || st == MANTA_EIO || st == MANTA_EINVAL;
}

manta_status s3_lease_probe(const char *path)
{
    s3_place at = {0}, p;
    char *nonce, *key, etag[S3_ETAG] = "";
    manta_status st, again, wrong;

    if (s3_lease_unlocked()) return MANTA_OK;
    TRY(storage_s3_place(path, &at));
    if (was_probed(at.bucket, false)) {
        s3_place_release(&at);
        return MANTA_OK;
    }
    nonce = s3_lease_nonce();
    key = mem_printf("%s%s.probe-%s", at.key, *at.key ? "/" : "", nonce);
    p = (s3_place){at.bucket, key};
    st = s3_put(&p, nonce, strlen(nonce), (s3_if){.absent = true}, etag);
    if (!st) {
        again = s3_put(&p, "other", 5, (s3_if){.absent = true}, NULL);
        wrong = s3_put(&p, "other", 5, (s3_if){.etag = "\"00000000000000000000000000000000\""}, NULL);
        if (!again || !wrong) {
            st = refuse_server(&p, !again ? "puts over a key that is there although it is told not to"
                                          : "replaces a key although it is not as told");
        } else if (again != MANTA_EEXIST || wrong != MANTA_EEXIST) {
            st = not_known(again) || not_known(wrong) ? refuse_server(&p, "does not know conditions of PUT")
                 : again != MANTA_EEXIST              ? again
                                                      : wrong;
        }
        if (s3_remove(&p)) log_debug("an object of a probe stays", LOG_STR("key", key));
    } else if (st == MANTA_EUNSUPPORTED || st == MANTA_EEXIST) {
        st = refuse_server(&p, "does not know If-None-Match of PUT");
    }
    if (!st) was_probed(at.bucket, true);
    mem_free(nonce);
    mem_free(key);
    s3_place_release(&at);
    return st;
}

/* ---- taking ---- */

static manta_status fail_busy(const char *path, const claim *c, const s3_object *about)
{
    int64_t age = age_s(about);
    int64_t left = c->lease_s + SLACK_S + 1 - age;

    if (age < 0)
        return manta_fail(MANTA_EBUSY, "%s is held by process %ld on %s; the server does not tell since when",
                          path, c->pid, c->host);
    return manta_fail(MANTA_EBUSY,
                      "%s is held by process %ld on %s; if that is gone, the lock lapses in %lld s", path,
                      c->pid, c->host, (long long)(left > 0 ? left : 1));
}

/* Puts what we claim; MANTA_EEXIST another was faster. */
static manta_status put_claim(s3_lease *l, s3_if when)
{
    int64_t begun = lease_now_ns();
    char *text;
    manta_status st;

    l->count++;
    text = claim_text(l, false);
    if (s3_lease_unlocked()) when = (s3_if){0};
    st = s3_put(&l->place, text, strlen(text), when, l->etag);
    if (!st) l->held_until = begun + (int64_t)l->lease_s * 1000000000;
    free(text);
    return st;
}

static manta_status take_claim(s3_lease *l)
{
    for (int i = 0; i < TRIES; i++) {
        s3_object about = {0};
        claim c = {0};
        bool is_free = true;
        manta_status st = read_claim(&l->place, &c, &about, &is_free);
        if (st && st != MANTA_ENOENT) return st;
        if (!st && !is_free) return fail_busy(l->path, &c, &about);
        st = put_claim(l, st ? (s3_if){.absent = true} : (s3_if){.etag = about.etag});
        if (st != MANTA_EEXIST) return st;
    }
    return manta_fail(MANTA_EBUSY, "%s: others take this lock at the same time", l->path);
}

/* ---- renewing ---- */

/* Looks whether the lock that is not as we know it is still ours: a renewal whose answer never came has
 * changed it. MANTA_OK it is, and *etag is its mark now; MANTA_EEXIST it is another's. */
static manta_status find_own(const s3_lease *l, char etag[S3_ETAG])
{
    s3_object about = {0};
    claim c = {0};
    bool is_free;

    TRY(read_claim(&l->place, &c, &about, &is_free));
    if (c.released || strcmp(c.nonce, l->nonce) != 0)
        return manta_fail(MANTA_EEXIST, "the lock %s is held by process %ld on %s", l->path, c.pid, c.host);
    memcpy(etag, about.etag, sizeof about.etag);
    return MANTA_OK;
}

static manta_status put_renewal(const s3_lease *l, const char *text, char etag[S3_ETAG])
{
    s3_if when = s3_lease_unlocked() ? (s3_if){0} : (s3_if){.etag = etag};

    return s3_put(&l->place, text, strlen(text), when, etag);
}

static void renew_lease(s3_lease *l) /* under its lock, which it gives away meanwhile */
{
    char *text, etag[S3_ETAG];
    int64_t begun = lease_now_ns();
    manta_status st;

    l->count++;
    text = claim_text(l, false);
    memcpy(etag, l->etag, sizeof etag);
    mutex_unlock(&l->lock);
    st = put_renewal(l, text, etag);
    if (st == MANTA_EEXIST && !(st = find_own(l, etag))) st = put_renewal(l, text, etag);
    mutex_lock(&l->lock);
    free(text);
    if (!st) {
        memcpy(l->etag, etag, sizeof etag);
        l->held_until = begun + (int64_t)l->lease_s * 1000000000;
    } else if (st == MANTA_EEXIST || st == MANTA_ENOENT) {
        l->lost = true;
        log_warn("the lock of a run is another's now; nothing is stored any more", LOG_STR("path", l->path));
    } else {
        log_debug("the lock of a run could not be renewed", LOG_STR("why", manta_error_text()));
    }
}

static void renew_all_along(void *arg)
{
    s3_lease *l = arg;
    int64_t next = clock_deadline((int64_t)l->lease_s * 1000 / 3);

    mutex_lock(&l->lock);
    while (!l->leave && !l->lost) {
        if (cond_wait(&l->changed, &l->lock, next) || clock_now_ns() < next) continue;
        renew_lease(l);
        next = clock_deadline((int64_t)l->lease_s * 1000 / 3);
    }
    mutex_unlock(&l->lock);
}

static void release_claim(s3_lease *l)
{
    char *text;

    l->count++;
    text = claim_text(l, true);
    if (s3_put(&l->place, text, strlen(text), s3_lease_unlocked() ? (s3_if){0} : (s3_if){.etag = l->etag},
               NULL))
        log_debug("a lock stays until it lapses", LOG_STR("why", manta_error_text()));
    free(text);
}

static void lease_release(s3_lease *l)
{
    mutex_release(&l->lock);
    cond_release(&l->changed);
    s3_place_release(&l->place);
    mem_free(l->path);
    mem_free(l->nonce);
    mem_free(l);
}

static bool is_own_lock(const char *bucket, const char *key) /* under all_lock */
{
    for (const s3_lease *l = all; l; l = l->next)
        if (!strcmp(bucket, l->place.bucket) && !strcmp(key, l->place.key)) return true;
    return false;
}

/* Refuses what lies below a lock of ours that was not renewed in time; locks themselves are renewed. */
static manta_status may_change(const char *bucket, const char *key)
{
    manta_status st = MANTA_OK;

    pthread_mutex_lock(&all_lock);
    for (s3_lease *l = is_own_lock(bucket, key) ? NULL : all; l && !st; l = l->next) {
        bool late, lost;
        if (l->owner != getpid() || strcmp(bucket, l->place.bucket) != 0 ||
            strncmp(key, l->place.key, l->folder_n) != 0)
            continue;
        mutex_lock(&l->lock);
        lost = l->lost;
        late = lost || lease_now_ns() > l->held_until;
        mutex_unlock(&l->lock);
        if (late)
            st = manta_fail(MANTA_EBUSY, "changing s3://%s/%s: the lock %s %s, so nothing is stored there",
                            bucket, key, l->path,
                            lost ? "has been taken by another" : "could not be renewed in time");
    }
    pthread_mutex_unlock(&all_lock);
    return st;
}

manta_status s3_lease_take(const char *path, s3_lease **out)
{
    s3_lease *l = mem_new(sizeof *l);
    char *folder = file_above(path);
    manta_status st;

    mutex_init(&l->lock);
    cond_init(&l->changed);
    l->path = mem_strdup(path);
    l->owner = getpid();
    l->lease_s = lease_seconds();
    l->nonce = s3_lease_nonce();
    st = storage_s3_place(path, &l->place);
    if (!st) l->folder_n = (size_t)(s3_key_last(l->place.key) - l->place.key);
    if (!st) st = s3_lease_probe(folder);
    if (!st) st = take_claim(l);
    if (!st && (st = thread_start(&l->thread, "lease", renew_all_along, l))) release_claim(l);
    mem_free(folder);
    if (st) {
        lease_release(l);
        return st;
    }
    pthread_mutex_lock(&all_lock);
    l->next = all;
    all = l;
    pthread_mutex_unlock(&all_lock);
    s3_on_change(may_change);
    *out = l;
    return MANTA_OK;
}

void s3_lease_free(s3_lease *l)
{
    manta_error why;

    if (!l || l->owner != getpid()) return; /* the parent's */
    manta_error_get(&why);
    pthread_mutex_lock(&all_lock);
    for (s3_lease **p = &all; *p; p = &(*p)->next) {
        if (*p != l) continue;
        *p = l->next;
        break;
    }
    pthread_mutex_unlock(&all_lock);
    mutex_lock(&l->lock);
    l->leave = true;
    cond_broadcast(&l->changed);
    mutex_unlock(&l->lock);
    thread_join(&l->thread);
    if (!l->lost) release_claim(l);
    lease_release(l);
    if (why.code) (void)!manta_error_raise(&why); /* the sentence of what went before stays */
}

/* ---- asking ---- */

int s3_lease_holder(const char *path)
{
    s3_place p = {0};
    s3_object about = {0};
    claim c = {0};
    bool is_free = true;
    manta_status st = storage_s3_place(path, &p);

    if (!st) st = read_claim(&p, &c, &about, &is_free);
    s3_place_release(&p);
    if (st == MANTA_ENOENT || (!st && is_free)) return 0;
    return !st && is_of_here(&c) ? (int)c.pid : -1;
}

manta_status s3_lease_check(const char *path)
{
    s3_place p = {0};
    manta_status st = storage_s3_place(path, &p);

    if (!st) st = may_change(p.bucket, p.key);
    s3_place_release(&p);
    return st;
}
