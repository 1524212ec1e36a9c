/* http.c - see http.h.
 *
 * The connections lie in libcurl's multi handles. Each http_perform() takes one out of
 * a pool, has it alone, and puts it back. After a fork the child forgets the pool: the
 * sockets are the parent's.
 *
 * OpenSSL writes to sockets by write(2), so a connection that the server closed would
 * raise SIGPIPE: it is blocked meanwhile, and taken off where it came. */
#include "web/http.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "web/curl.h"

enum { POOL = 8, CONNECT_MS = 10000, SILENCE_MS = 30000, TURN_MS = 1000 };

static struct {
    pthread_mutex_t lock; /* guards the rest */
    pid_t owner;
    int n;
    CURLM *at[POOL];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const curl_table *lib; /* set under the pool's lock, before its first use */
static pthread_once_t watched = PTHREAD_ONCE_INIT;

/* ---- a call ---- */

void http_add_header(http_call *c, const char *name, const char *value)
{
    vec_push(&c->headers, mem_printf("%s: %s", name, value));
}

void http_again(http_call *c)
{
    c->trouble = HTTP_NONE;
    c->status = 0;
    c->got = 0;
    c->length = -1;
    c->why[0] = c->etag[0] = c->date[0] = c->last_modified[0] = c->content_range[0] = c->region[0] =
        c->retry_after[0] = '\0';
    buf_cut(&c->text, 0);
}

void http_release(http_call *c)
{
    for (size_t i = 0; i < c->headers.n; i++) mem_free(c->headers.at[i]);
    vec_release(&c->headers);
    buf_release(&c->text);
}

/* ---- what comes ---- */

/* The value of the header `name` in a line, without the space around it and without anything that
 * could not stand in a sentence or in a header of ours. */
static bool header_value(const char *line, size_t n, const char *name, char out[HTTP_FIELD])
{
    size_t k = strlen(name);

    if (n <= k || line[k] != ':' || strncasecmp(line, name, k) != 0) return false;
    line += k + 1;
    n -= k + 1;
    while (n && (*line == ' ' || *line == '\t')) line++, n--;
    while (n && (unsigned char)line[n - 1] <= ' ') n--;
    if (n >= HTTP_FIELD) n = 0;
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)line[i] < ' ' || line[i] == 127 ? '?' : line[i];
    out[n] = '\0';
    return true;
}

static size_t take_header(char *line, size_t size, size_t count, void *ctx)
{
    http_call *c = ctx;
    char length[HTTP_FIELD];
    size_t n = size * count;

    if (n > 5 && !strncasecmp(line, "HTTP/", 5)) http_again(c); /* the answer behind a redirection */
    if (header_value(line, n, "ETag", c->etag) || header_value(line, n, "Date", c->date) ||
        header_value(line, n, "Last-Modified", c->last_modified) ||
        header_value(line, n, "Content-Range", c->content_range) ||
        header_value(line, n, "x-amz-bucket-region", c->region) ||
        header_value(line, n, "Retry-After", c->retry_after))
        return n;
    if (header_value(line, n, "Content-Length", length)) c->length = strtoll(length, NULL, 10);
    return n;
}

typedef struct flight {
    http_call *call;
    CURL *easy;
    struct curl_slist *headers;
    bool ended;
    char error[CURL_ERROR_SIZE];
} flight;

static size_t take_bytes(char *data, size_t size, size_t count, void *ctx)
{
    flight *f = ctx;
    http_call *c = f->call;
    size_t n = size * count;
    long status = 0;

    lib->curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
    if (c->to && status >= 200 && status < 300) {
        if (n > c->room - c->got) {
            c->trouble = HTTP_TOO_LONG;
            return 0;
        }
        memcpy((char *)c->to + c->got, data, n);
        c->got += n;
        return n;
    }
    if (n > HTTP_TEXT_MOST - c->text.n) {
        c->trouble = HTTP_TOO_LONG;
        return 0;
    }
    buf_add(&c->text, data, n);
    return n;
}

static http_trouble trouble_of(CURLcode r)
{
    switch (r) {
    case CURLE_OK: return HTTP_NONE;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL: return HTTP_ADDRESS;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY: return HTTP_NAME;
    case CURLE_COULDNT_CONNECT: return HTTP_CONNECT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR: return HTTP_TLS;
    case CURLE_OPERATION_TIMEDOUT: return HTTP_SLOW;
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_WEIRD_SERVER_REPLY: return HTTP_CUT;
    default: return HTTP_OTHER;
    }
}

/* ---- performing ---- */

static void set_method(flight *f)
{
    const http_call *c = f->call;
    bool sends = !strcmp(c->method, "PUT") || !strcmp(c->method, "POST");

    if (!strcmp(c->method, "HEAD")) {
        lib->curl_easy_setopt(f->easy, CURLOPT_NOBODY, 1L);
    } else if (sends) {
        lib->curl_easy_setopt(f->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->size);
        lib->curl_easy_setopt(f->easy, CURLOPT_POSTFIELDS, c->size ? c->body : "");
        lib->curl_easy_setopt(f->easy, CURLOPT_CUSTOMREQUEST, c->method);
        f->headers = lib->curl_slist_append(f->headers, "Expect:");
        f->headers = lib->curl_slist_append(f->headers, "Content-Type: application/octet-stream");
    } else if (strcmp(c->method, "GET") != 0) {
        lib->curl_easy_setopt(f->easy, CURLOPT_CUSTOMREQUEST, c->method);
    }
}

static void set_options(flight *f)
{
    const http_call *c = f->call;
    int left = clock_left_ms(c->deadline);
    int silence = c->silence_ms ? c->silence_ms : SILENCE_MS;
    const char *trusted = getenv("AWS_CA_BUNDLE");

    lib->curl_easy_setopt(f->easy, CURLOPT_URL, c->url);
    lib->curl_easy_setopt(f->easy, CURLOPT_PATH_AS_IS, 1L); /* what was signed is what is sent */
    lib->curl_easy_setopt(f->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    lib->curl_easy_setopt(f->easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    lib->curl_easy_setopt(f->easy, CURLOPT_FOLLOWLOCATION, c->follow ? 1L : 0L);
    lib->curl_easy_setopt(f->easy, CURLOPT_MAXREDIRS, 5L);
    lib->curl_easy_setopt(f->easy, CURLOPT_NOSIGNAL, 1L);
    lib->curl_easy_setopt(f->easy, CURLOPT_USERAGENT, "manta");
    lib->curl_easy_setopt(f->easy, CURLOPT_ERRORBUFFER, f->error);
    lib->curl_easy_setopt(f->easy, CURLOPT_CONNECTTIMEOUT_MS,
                          (long)(c->connect_ms ? c->connect_ms : CONNECT_MS));
    lib->curl_easy_setopt(f->easy, CURLOPT_TIMEOUT_MS, left < 0 ? 0L : left ? (long)left : 1L);
    lib->curl_easy_setopt(f->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    lib->curl_easy_setopt(f->easy, CURLOPT_LOW_SPEED_TIME, (long)(silence + 999) / 1000);
    lib->curl_easy_setopt(f->easy, CURLOPT_HEADERFUNCTION, take_header);
    lib->curl_easy_setopt(f->easy, CURLOPT_HEADERDATA, f->call);
    lib->curl_easy_setopt(f->easy, CURLOPT_WRITEFUNCTION, take_bytes);
    lib->curl_easy_setopt(f->easy, CURLOPT_WRITEDATA, f);
    if (trusted && *trusted) lib->curl_easy_setopt(f->easy, CURLOPT_CAINFO, trusted);
    set_method(f);
    for (size_t i = 0; i < c->headers.n; i++)
        f->headers = lib->curl_slist_append(f->headers, c->headers.at[i]);
    lib->curl_easy_setopt(f->easy, CURLOPT_HTTPHEADER, f->headers);
}

static void note_end(flight *f, CURLcode r)
{
    http_call *c = f->call;
    long status = 0;

    f->ended = true;
    lib->curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
    c->status = (int)status;
    if (c->trouble == HTTP_TOO_LONG) {
        snprintf(c->why, sizeof c->why, "the answer has more bytes than were asked for");
        return;
    }
    c->trouble = trouble_of(r);
    if (r) snprintf(c->why, sizeof c->why, "%.190s", f->error[0] ? f->error : lib->curl_easy_strerror(r));
    for (char *p = c->why; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
}

/* In a child of a fork: a thread that had the lock is not there to give it back. */
static void mend_lock(void)
{
    if (!pthread_mutex_trylock(&pool.lock))
        pthread_mutex_unlock(&pool.lock);
    else
        pthread_mutex_init(&pool.lock, NULL);
}

static void watch_forks(void)
{
    (void)!pthread_atfork(NULL, NULL, mend_lock);
}

static CURLM *take_multi(const curl_table *table)
{
    CURLM *m = NULL;

    pthread_mutex_lock(&pool.lock);
    if (!lib) lib = table;
    if (pool.owner != getpid()) pool.n = 0;
    pool.owner = getpid();
    if (pool.n) m = pool.at[--pool.n];
    pthread_mutex_unlock(&pool.lock);
    return m ? m : lib->curl_multi_init();
}

static void give_multi(CURLM *m)
{
    pthread_mutex_lock(&pool.lock);
    if (pool.n < POOL) {
        pool.at[pool.n++] = m;
        m = NULL;
    }
    pthread_mutex_unlock(&pool.lock);
    if (m) lib->curl_multi_cleanup(m);
}

/* Gives up those that may not go on. */
static void stop_flights(CURLM *m, flight *all, int n)
{
    for (int i = 0; i < n; i++) {
        http_call *c = all[i].call;
        if (all[i].ended || !c->may || !c->may(c->may_ctx)) continue;
        lib->curl_multi_remove_handle(m, all[i].easy);
        all[i].ended = true;
        c->trouble = HTTP_STOPPED;
        c->status = 0;
        snprintf(c->why, sizeof c->why, "it was given up before an answer came");
    }
}

static void run_flights(CURLM *m, flight *all, int n)
{
    int64_t ask = clock_deadline(TURN_MS);
    int running = 1;

    while (running) {
        CURLMsg *msg;
        int waiting;
        if (lib->curl_multi_perform(m, &running)) break;
        while ((msg = lib->curl_multi_info_read(m, &waiting)))
            for (int i = 0; i < n; i++)
                if (msg->msg == CURLMSG_DONE && all[i].easy == msg->easy_handle)
                    note_end(&all[i], msg->data.result);
        if (running && clock_now_ns() >= ask) {
            stop_flights(m, all, n);
            ask = clock_deadline(TURN_MS);
        }
        if (running && lib->curl_multi_poll(m, NULL, 0, TURN_MS, NULL)) break;
    }
}

/* Blocks SIGPIPE; gives what was before. */
static void block_pipe(sigset_t *pipe, sigset_t *before, bool *pending)
{
    sigset_t now;

    sigemptyset(pipe);
    sigaddset(pipe, SIGPIPE);
    sigpending(&now);
    *pending = sigismember(&now, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, pipe, before);
}

static void unblock_pipe(const sigset_t *pipe, const sigset_t *before, bool pending)
{
    struct timespec none = {0};

    while (!pending && sigtimedwait(pipe, NULL, &none) > 0) {}
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

manta_status http_perform(http_call *const *calls, int n)
{
    const curl_table *table;
    flight *all;
    CURLM *m;
    sigset_t pipe, before;
    bool pending, enough = true;

    TRY(curl_table_get(&table));
    pthread_once(&watched, watch_forks);
    if (!(m = take_multi(table))) return manta_fail(MANTA_ENOMEM, "libcurl could not be started");
    block_pipe(&pipe, &before, &pending);
    all = mem_new((size_t)n * sizeof *all);
    for (int i = 0; i < n; i++) {
        http_again(calls[i]);
        calls[i]->trouble = HTTP_OTHER;
        all[i] = (flight){.call = calls[i], .easy = lib->curl_easy_init()};
        if (!all[i].easy) {
            enough = false;
            continue;
        }
        set_options(&all[i]);
        lib->curl_multi_add_handle(m, all[i].easy);
    }
    if (enough) run_flights(m, all, n);
    for (int i = 0; i < n; i++) {
        if (all[i].easy) {
            lib->curl_multi_remove_handle(m, all[i].easy);
            lib->curl_easy_cleanup(all[i].easy);
        }
        lib->curl_slist_free_all(all[i].headers);
    }
    mem_free(all);
    give_multi(m);
    unblock_pipe(&pipe, &before, pending);
    return enough ? MANTA_OK : manta_fail(MANTA_ENOMEM, "libcurl has no memory for another call");
}

/* ---- texts ---- */

/* The number in n digits; -1: they are none. */
static int digits_at(const char *text, int n)
{
    int number = 0;

    for (int i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return -1;
        number = number * 10 + text[i] - '0';
    }
    return number;
}

int64_t http_date_ns(const char *text)
{
    static const char form[] = "###, 00 ### 0000 00:00:00 GMT",
                      months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct tm t = {0};
    char month[4];
    const char *at;

    if (strlen(text) != sizeof form - 1) return -1;
    for (size_t i = 0; form[i]; i++)
        if (form[i] != '#' && form[i] != '0' && form[i] != text[i]) return -1;
    snprintf(month, sizeof month, "%.3s", text + 8);
    at = strstr(months, month);
    t.tm_mday = digits_at(text + 5, 2);
    t.tm_year = digits_at(text + 12, 4);
    t.tm_hour = digits_at(text + 17, 2);
    t.tm_min = digits_at(text + 20, 2);
    t.tm_sec = digits_at(text + 23, 2);
    if (!at || (at - months) % 3 || t.tm_year < 1970 || t.tm_year > 2200 || t.tm_mday < 1 || t.tm_mday > 31 ||
        t.tm_hour < 0 || t.tm_hour > 23 || t.tm_min < 0 || t.tm_min > 59 || t.tm_sec < 0 || t.tm_sec > 60)
        return -1;
    t.tm_mon = (int)(at - months) / 3;
    t.tm_year -= 1900;
    return (int64_t)timegm(&t) * 1000000000;
}

int64_t http_range_total(const char *text)
{
    const char *slash = strrchr(text, '/');
    char *end;
    long long total;

    if (strncasecmp(text, "bytes ", 6) != 0 || !slash || slash[1] < '0' || slash[1] > '9') return -1;
    errno = 0;
    total = strtoll(slash + 1, &end, 10);
    return *end || errno ? -1 : total;
}

char *http_host(const char *url)
{
    const char *at = strstr(url, "://");
    bool secure = !strncasecmp(url, "https", 5);
    const char *own = secure ? ":443" : ":80";
    size_t n;

    at = at ? at + 3 : url;
    n = strcspn(at, "/?#");
    if (n > strlen(own) && !strncmp(at + n - strlen(own), own, strlen(own))) n -= strlen(own);
    return mem_strndup(at, n);
}
