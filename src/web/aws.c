/* aws.c - see aws.h. */
#include "web/aws.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/file.h"
#include "web/http.h"
#include "web/ini.h"

enum { FILE_MOST = 1 << 20, ENDPOINT_MS = 5000, CONNECT_MS = 2000, EARLY_S = 300 };

static struct {
    pthread_mutex_t lock; /* guards the rest */
    bool known;
    int64_t until_s; /* since 1970; 0: they do not expire */
    aws_keys keys;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void wipe_text(char *s)
{
    if (s) explicit_bzero(s, strlen(s));
    mem_free(s);
}

void aws_keys_release(aws_keys *k)
{
    wipe_text(k->id);
    wipe_text(k->secret);
    wipe_text(k->token);
    *k = (aws_keys){0};
}

static aws_keys copy_keys(const aws_keys *k)
{
    aws_keys to = *k;

    if (k->id) to.id = mem_strdup(k->id);
    if (k->secret) to.secret = mem_strdup(k->secret);
    if (k->token) to.token = mem_strdup(k->token);
    return to;
}

/* A variable that is set and not empty. */
static const char *find_variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static bool is_yes(const char *name)
{
    const char *value = find_variable(name);

    return value && (!strcmp(value, "1") || !strcasecmp(value, "true") || !strcasecmp(value, "yes"));
}

/* ---- files ---- */

static const char *profile_name(void)
{
    const char *p = find_variable("AWS_PROFILE");

    return p ? p : "default";
}

/* A file of ~/.aws; NULL: it is not there. Owned, give back with mem_try_free(). */
static char *read_own(const char *variable, const char *name, size_t *n)
{
    const char *path = find_variable(variable), *home = find_variable("HOME");
    char *made = NULL;
    void *text = NULL;

    if (!path && !home) return NULL;
    if (!path) path = made = mem_printf("%s/.aws/%s", home, name);
    if (file_read(path, FILE_MOST, &text, n)) text = NULL;
    mem_free(made);
    return text;
}

/* A value of the profile, in the file of keys or in that of settings. Owned. */
static char *profile_value(bool settings, const char *name)
{
    const char *profile = profile_name();
    size_t n = 0;
    char *text = settings ? read_own("AWS_CONFIG_FILE", "config", &n)
                          : read_own("AWS_SHARED_CREDENTIALS_FILE", "credentials", &n);
    char *section =
        settings && strcmp(profile, "default") != 0 ? mem_printf("profile %s", profile) : mem_strdup(profile);
    char *value = text ? ini_get(text, n, section, name) : NULL;

    if (text) explicit_bzero(text, n);
    mem_try_free(text);
    mem_free(section);
    return value;
}

static bool keys_of_file(bool settings, aws_keys *out)
{
    out->id = profile_value(settings, "aws_access_key_id");
    out->secret = profile_value(settings, "aws_secret_access_key");
    out->token = profile_value(settings, "aws_session_token");
    if (out->id && out->secret) {
        snprintf(out->source, sizeof out->source, "profile '%.40s' of ~/.aws/%s", profile_name(),
                 settings ? "config" : "credentials");
        return true;
    }
    aws_keys_release(out);
    return false;
}

/* ---- endpoints ---- */

/* "2024-05-01T12:00:00Z" in seconds since 1970; 0: it is none. */
static int64_t parse_time(const char *text)
{
    struct tm t = {0};

    if (!text || !strptime(text, "%Y-%m-%dT%H:%M:%S", &t)) return 0;
    return (int64_t)timegm(&t);
}

static manta_status take_json(const char *url, const buf *text, aws_keys *out, int64_t *until_s)
{
    json_error_t why;
    json_t *o = json_loadb(buf_text(text), text->n, 0, &why);
    const char *id = json_string_value(json_object_get(o, "AccessKeyId"));
    const char *secret = json_string_value(json_object_get(o, "SecretAccessKey"));
    const char *token = json_string_value(json_object_get(o, "Token"));
    manta_status st = MANTA_OK;

    if (id && secret) {
        out->id = mem_strdup(id);
        out->secret = mem_strdup(secret);
        out->token = token ? mem_strdup(token) : NULL;
        *until_s = parse_time(json_string_value(json_object_get(o, "Expiration")));
    } else {
        st = manta_fail(MANTA_ECORRUPT,
                        "credentials from %s: expected AccessKeyId and SecretAccessKey in the answer", url);
    }
    json_decref(o);
    return st;
}

static manta_status ask_endpoint(const char *method, const char *url, const char *header, const char *value,
                                 buf *text)
{
    http_call c = {
        .method = method, .url = url, .deadline = clock_deadline(ENDPOINT_MS), .connect_ms = CONNECT_MS};
    http_call *all[] = {&c};
    manta_status st;

    if (header) http_add_header(&c, header, value);
    st = http_perform(all, 1);
    if (!st && c.trouble)
        st = manta_fail(MANTA_EIO, "credentials from %s: %s", url, c.why);
    else if (!st && c.status != 200)
        st = manta_fail(MANTA_EIO, "credentials from %s: the endpoint answered %d", url, c.status);
    if (!st) buf_add(text, c.text.at, c.text.n);
    if (c.text.at) explicit_bzero(c.text.at, c.text.n);
    http_release(&c);
    return st;
}

/* The token that a container shows to its endpoint; NULL: none. Owned. */
static char *container_token(void)
{
    const char *path = find_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = find_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    void *text = NULL;
    size_t n;
    char *out;

    if (!path || file_read(path, FILE_MOST, &text, &n)) return token ? mem_strdup(token) : NULL;
    out = mem_strndup(text, strcspn(text, "\r\n"));
    mem_try_free(text);
    return out;
}

/* Keys are sent over the wire in the clear only on this host. */
static bool may_be_asked(const char *url)
{
    static const char *const near[] = {"http://127.0.0.1", "http://localhost", "http://[::1]",
                                       "http://169.254.170.2", "http://169.254.170.23"};
    const char *at = strstr(url, "://");

    at = at ? at + 3 : url;
    if (memchr(at, '@', strcspn(at, "/?#"))) return false; /* http://localhost:x@elsewhere */
    if (!strncmp(url, "https://", 8)) return true;
    for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
        size_t n = strlen(near[i]);
        if (!strncmp(url, near[i], n) && strchr(":/", url[n])) return true;
    }
    return false;
}

static manta_status keys_of_container(aws_keys *out, int64_t *until_s)
{
    const char *full = find_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    const char *relative = find_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    char *url = relative ? mem_printf("http://169.254.170.2%s", relative) : mem_strdup(full);
    char *token = container_token();
    buf text = {0};
    manta_status st;

    if (!may_be_asked(url)) {
        st = manta_fail(
            MANTA_EPERM,
            "AWS_CONTAINER_CREDENTIALS_FULL_URI cannot be used: expected https, or http on this host, "
            "without name or password");
    } else if (!(st = ask_endpoint("GET", url, token ? "Authorization" : NULL, token, &text))) {
        st = take_json(url, &text, out, until_s);
    }
    snprintf(out->source, sizeof out->source, "the container's endpoint");
    if (text.at) explicit_bzero(text.at, text.n);
    buf_release(&text);
    wipe_text(token);
    mem_free(url);
    return st;
}

/* Version 2 of the instance's service: a token first, then the role, then its keys. */
static manta_status keys_of_instance(const char *endpoint, aws_keys *out, int64_t *until_s)
{
    int n = (int)strlen(endpoint) - (endpoint[strlen(endpoint) - 1] == '/');
    char *url = mem_printf("%.*s/latest/api/token", n, endpoint);
    buf token = {0}, role = {0}, text = {0};
    manta_status st = ask_endpoint("PUT", url, "X-aws-ec2-metadata-token-ttl-seconds", "300", &token);

    mem_free(url);
    url = mem_printf("%.*s/latest/meta-data/iam/security-credentials/", n, endpoint);
    if (!st) st = ask_endpoint("GET", url, "X-aws-ec2-metadata-token", buf_text(&token), &role);
    if (!st) {
        char *inner = mem_printf("%s%.*s", url, (int)strcspn(buf_text(&role), "\r\n"), buf_text(&role));
        st = ask_endpoint("GET", inner, "X-aws-ec2-metadata-token", buf_text(&token), &text);
        if (!st) st = take_json(inner, &text, out, until_s);
        mem_free(inner);
    }
    snprintf(out->source, sizeof out->source, "the instance's endpoint");
    if (text.at) explicit_bzero(text.at, text.n);
    buf_release(&text);
    buf_release(&role);
    buf_release(&token);
    mem_free(url);
    return st;
}

/* ---- the chain ---- */

static manta_status no_keys(void)
{
    return manta_fail(MANTA_EPERM,
                      "there are no credentials for S3: looked at AWS_ACCESS_KEY_ID with "
                      "AWS_SECRET_ACCESS_KEY, at profile '%.40s' of ~/.aws/credentials and ~/.aws/config, at "
                      "AWS_CONTAINER_CREDENTIALS_*, AWS_EC2_METADATA_SERVICE_ENDPOINT; MANTA_S3_ANONYMOUS=1 "
                      "reads what is public",
                      profile_name());
}

static manta_status find_keys(aws_keys *out, int64_t *until_s)
{
    const char *id = find_variable("AWS_ACCESS_KEY_ID"), *secret = find_variable("AWS_SECRET_ACCESS_KEY");
    const char *token = find_variable("AWS_SESSION_TOKEN"),
               *endpoint = find_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    char *from;
    bool instance;

    *until_s = 0;
    if (is_yes("MANTA_S3_ANONYMOUS")) {
        snprintf(out->source, sizeof out->source, "MANTA_S3_ANONYMOUS: nothing is signed");
        return MANTA_OK;
    }
    if (id && secret) {
        *out = (aws_keys){mem_strdup(id), mem_strdup(secret), token ? mem_strdup(token) : NULL,
                          "the environment"};
        return MANTA_OK;
    }
    if (keys_of_file(false, out) || keys_of_file(true, out)) return MANTA_OK;
    if (find_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI") ||
        find_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"))
        return keys_of_container(out, until_s);
    from = profile_value(true, "credential_source");
    instance = endpoint || (from && !strcasecmp(from, "Ec2InstanceMetadata"));
    mem_free(from);
    if (instance && !is_yes("AWS_EC2_METADATA_DISABLED"))
        return keys_of_instance(endpoint ? endpoint : "http://169.254.169.254", out, until_s);
    return no_keys();
}

/* In a child of a fork: a thread that had the lock, perhaps while it asked an endpoint, is not there to give
 * it back, and what it has left is not looked at. */
static void mend_kept(void)
{
    if (!pthread_mutex_trylock(&kept.lock)) {
        pthread_mutex_unlock(&kept.lock);
        return;
    }
    pthread_mutex_init(&kept.lock, NULL);
    kept.known = false;
    kept.keys = (aws_keys){0};
}

static void watch_forks(void)
{
    (void)!pthread_atfork(NULL, NULL, mend_kept);
}

manta_status aws_keys_get(aws_keys *out)
{
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    manta_status st = MANTA_OK;
    int64_t now_s = clock_wall_ns() / 1000000000;

    pthread_once(&watched, watch_forks);
    pthread_mutex_lock(&kept.lock);
    if (!kept.known || (kept.until_s && kept.until_s - EARLY_S < now_s)) {
        aws_keys found = {0};
        int64_t until_s = 0;
        if (!(st = find_keys(&found, &until_s))) {
            aws_keys_release(&kept.keys);
            kept.keys = found;
            kept.until_s = until_s;
            kept.known = true;
        } else if (kept.known && now_s < kept.until_s) {
            st = MANTA_OK; /* those that are here are good for some minutes more */
        }
    }
    if (!st) *out = copy_keys(&kept.keys);
    pthread_mutex_unlock(&kept.lock);
    return st;
}

void aws_keys_forget(void)
{
    pthread_mutex_lock(&kept.lock);
    aws_keys_release(&kept.keys);
    kept.known = false;
    pthread_mutex_unlock(&kept.lock);
}

/* ---- where ---- */

static manta_status check_endpoint(char *url)
{
    size_t n = strlen(url);
    const char *host = strstr(url, "://");

    while (n && url[n - 1] == '/') url[--n] = '\0';
    if ((!strncmp(url, "http://", 7) || !strncmp(url, "https://", 8)) && host[3] &&
        !strpbrk(host + 3, "/?#@"))
        return MANTA_OK;
    return manta_fail(MANTA_EINVAL,
                      "the endpoint of S3 (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or endpoint_url of the "
                      "profile) cannot be used: expected http://HOST:PORT or https://HOST:PORT, without "
                      "path, name or password");
}

manta_status aws_server_get(aws_server *out)
{
    const char *endpoint = find_variable("AWS_ENDPOINT_URL_S3"), *region = find_variable("AWS_REGION");
    const char *style = find_variable("MANTA_S3_STYLE");
    manta_status st = MANTA_OK;

    if (!endpoint) endpoint = find_variable("AWS_ENDPOINT_URL");
    if (!region) region = find_variable("AWS_DEFAULT_REGION");
    out->endpoint = endpoint ? mem_strdup(endpoint) : profile_value(true, "endpoint_url");
    out->region = region ? mem_strdup(region) : profile_value(true, "region");
    if (!out->region) out->region = mem_strdup("us-east-1");
    out->virtual_host = style ? !strcmp(style, "virtual") : !out->endpoint;
    if (out->endpoint) st = check_endpoint(out->endpoint);
    if (!st && strspn(out->region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(out->region))
        st =
            manta_fail(MANTA_EINVAL, "AWS_REGION is '%.40s', expected a name like eu-central-1", out->region);
    if (!st && style && strcmp(style, "virtual") != 0 && strcmp(style, "path") != 0)
        st = manta_fail(MANTA_EINVAL, "MANTA_S3_STYLE is '%.40s', expected 'path' or 'virtual'", style);
    if (st) aws_server_release(out);
    return st;
}

void aws_server_release(aws_server *s)
{
    mem_free(s->endpoint);
    mem_free(s->region);
    *s = (aws_server){0};
}
