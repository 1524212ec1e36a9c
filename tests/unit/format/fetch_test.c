/* fetch_test.c - fetching from a server that a thread of this test plays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <manta/data_file.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "ok.h"
#include "os/file.h"
#include "scratch.h"

/* What the server does. Set between fetches, when it is idle. */
static struct {
    int fd;
    int port;
    pthread_t thread;
    atomic_int requests;
    atomic_long first; /* of the last request's Range, 0 without */
    size_t cut_after; /* close the connection after so many bytes of the body; 0: never */
    bool no_ranges; /* answer 200 and everything */
    bool corrupt; /* change a byte of the body */
} server;

static void send_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t k = send(fd, data, n, MSG_NOSIGNAL);
        if (k <= 0) return;
        data += k;
        n -= (size_t)k;
    }
}

/* One request: files under data/ of the source tree, or of the scratch folder. */
static void serve(int fd)
{
    char request[4096], path[600], name[256] = "", head[256];
    size_t n = 0, size = 0;
    void *body = NULL;

    while (n < sizeof request - 1) {
        ssize_t k = recv(fd, request + n, sizeof request - 1 - n, 0);
        if (k <= 0) return;
        n += (size_t)k;
        request[n] = '\0';
        if (strstr(request, "\r\n\r\n")) break;
    }
    server.requests++;
    sscanf(request, "GET /%255[^ ?]", name);
    snprintf(path, sizeof path, "%s/data/%s", MANTA_SOURCE_DIR, name);
    if (access(path, R_OK)) snprintf(path, sizeof path, "%s/%s", scratch_dir, name);
    if (file_read(path, 1 << 26, &body, &size)) {
        send_all(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 65);
        return;
    }
    const char *range = strstr(request, "Range: bytes=");
    size_t at = range && !server.no_ranges ? strtoul(range + 13, NULL, 10) : 0;
    server.first = (long)at;
    if (server.corrupt) ((char *)body)[size / 2] ^= 1;
    if (at >= size) {
        snprintf(head, sizeof head, "HTTP/1.1 416 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        send_all(fd, head, strlen(head));
    } else {
        snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                 range && !server.no_ranges ? "206 Partial Content" : "200 OK", size - at);
        send_all(fd, head, strlen(head));
        size_t give = server.cut_after && server.cut_after < size - at ? server.cut_after : size - at;
        send_all(fd, (char *)body + at, give);
    }
    mem_try_free(body);
}

static void *server_main(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(server.fd, NULL, NULL);
        if (fd < 0) return NULL;
        serve(fd);
        close(fd);
    }
}

static int setup(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    char env[64];

    if (scratch_setup(state)) return -1;
    server.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(server.fd, (struct sockaddr *)&a, n) || listen(server.fd, 8) ||
        getsockname(server.fd, (struct sockaddr *)&a, &n)) {
        return -1;
    }
    server.port = ntohs(a.sin_port);
    snprintf(env, sizeof env, "http://127.0.0.1:%d", server.port);
    setenv("MANTA_DATA_URL", env, 1);
    setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
    unsetenv("http_proxy");
    unsetenv("all_proxy");
    setenv("no_proxy", "*", 1);
    return pthread_create(&server.thread, NULL, server_main, NULL);
}

static int teardown(void **state)
{
    shutdown(server.fd, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.fd);
    return scratch_teardown(state);
}

static void behave(size_t cut_after, bool no_ranges, bool corrupt)
{
    server.cut_after = cut_after;
    server.no_ranges = no_ranges;
    server.corrupt = corrupt;
}

/* A file of the server's with its sha256, and its URL. */
static char content[100000], sum_text[65], url[128];

static void make_file(const char *name, char fill)
{
    sha256 s;
    unsigned char sum[32];

    for (size_t i = 0; i < sizeof content; i++) content[i] = (char)(fill + (char)(i % 61));
    scratch_file(name, content, sizeof content);
    sha256_init(&s);
    sha256_add(&s, content, sizeof content);
    sha256_final(&s, sum);
    sha256_text(sum, sum_text);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/%s?token=1", server.port, name);
}

static void assert_whole(const char *path)
{
    void *data = NULL;
    size_t n = 0;

    assert_int_equal(file_read(path, 1 << 20, &data, &n), MANTA_OK);
    assert_int_equal(n, sizeof content);
    assert_memory_equal(data, content, n);
    mem_try_free(data);
}

static void a_cut_download_goes_on(void **state)
{
    (void)state;
    char path[512];
    make_file("a.bin", 'a');
    behave(30000, false, false);
    assert_int_equal(manta_data_fetch(url, sum_text, NULL, NULL, path, sizeof path), MANTA_EIO);
    assert_error_says("after 30000 bytes");
    assert_int_not_equal(access(scratch_path("cache/manta/data/a.bin"), F_OK),
                         0); /* not under its name yet */
    assert_int_equal(manta_data_fetch(url, sum_text, NULL, NULL, path, sizeof path), MANTA_EIO);
    assert_int_equal(server.first, 30000);
    behave(0, false, false);
    assert_ok(manta_data_fetch(url, sum_text, NULL, NULL, path, sizeof path));
    assert_int_equal(server.first, 60000);
    assert_string_equal(path, scratch_path("cache/manta/data/a.bin"));
    assert_whole(path);
    assert_int_not_equal(access(scratch_path("cache/manta/data/a.bin.part"), F_OK), 0);
    int before = server.requests;
    assert_int_equal(manta_data_fetch(url, sum_text, NULL, NULL, NULL, 0), MANTA_OK); /* it is here already */
    assert_int_equal(server.requests, before);
}

static void a_server_without_ranges_sends_all_again(void **state)
{
    (void)state;
    char path[512];
    make_file("b.bin", 'b');
    behave(30000, false, false);
    assert_int_equal(manta_data_fetch(url, sum_text, NULL, NULL, NULL, 0), MANTA_EIO);
    behave(0, true, false);
    assert_ok(manta_data_fetch(url, sum_text, NULL, NULL, path, sizeof path));
    assert_whole(path);
}

/* What a cut left behind is of an older file: found by the checksum, and
 * fetched again from the beginning. */
static void a_stale_part_is_fetched_again(void **state)
{
    (void)state;
    char path[512], junk[40000];
    make_file("c.bin", 'c');
    behave(0, false, false);
    memset(junk, 'x', sizeof junk);
    scratch_file("cache/manta/data/c.bin.part", junk, sizeof junk);
    assert_ok(manta_data_fetch(url, sum_text, NULL, NULL, path, sizeof path));
    assert_int_equal(server.first, 0);
    assert_whole(path);
    make_file("d.bin", 'd'); /* a part that is whole already */
    scratch_file("cache/manta/data/d.bin.part", content, sizeof content);
    assert_ok(manta_data_fetch(url, sum_text, NULL, NULL, path, sizeof path));
    assert_whole(path);
}

static void a_wrong_checksum_is_corrupt(void **state)
{
    (void)state;
    make_file("e.bin", 'e');
    behave(0, false, true);
    assert_int_equal(manta_data_fetch(url, sum_text, NULL, NULL, NULL, 0), MANTA_ECORRUPT);
    assert_error_says(sum_text);
    assert_int_not_equal(access(scratch_path("cache/manta/data/e.bin"), F_OK), 0);
    assert_int_not_equal(access(scratch_path("cache/manta/data/e.bin.part"), F_OK), 0);
    behave(0, false, false);
    assert_int_equal(manta_data_fetch(url, "123", NULL, NULL, NULL, 0), MANTA_EINVAL);
}

static bool stop_at_once(void *user, const char *file, int64_t done, int64_t total)
{
    (void)total;
    assert_string_equal(file, "f.bin");
    *(int64_t *)user = done;
    return done == 0;
}

static void stopped_and_wrong_downloads_are_refused(void **state)
{
    (void)state;
    int64_t done = -1;
    char small[8];
    make_file("f.bin", 'f');
    assert_int_equal(manta_data_fetch(url, NULL, stop_at_once, &done, NULL, 0), MANTA_ECANCELLED);
    assert_true(done > 0);
    assert_int_equal(manta_data_fetch(url, NULL, NULL, NULL, small, sizeof small), MANTA_EINVAL);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/nothing", server.port);
    assert_int_equal(manta_data_fetch(url, NULL, NULL, NULL, NULL, 0), MANTA_ENOENT);
    assert_error_says("404");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", server.port);
    assert_int_equal(manta_data_fetch(url, NULL, NULL, NULL, NULL, 0), MANTA_EINVAL);
    assert_int_equal(manta_data_fetch("file:///etc/passwd", NULL, NULL, NULL, NULL, 0), MANTA_EIO);
    assert_int_equal(manta_data_fetch("cifar", NULL, NULL, NULL, NULL, 0), MANTA_ENOENT);
    assert_error_says("mnist, fashion-mnist");
    assert_int_equal(manta_data_fetch("http://127.0.0.1:1/x.bin", NULL, NULL, NULL, NULL, 0), MANTA_EIO);
}

/* MNIST from our server, then opened from the cache it came to. */
static void a_builtin_dataset_is_fetched_and_opened(void **state)
{
    (void)state;
    char path[512];
    manta_dataset *d = NULL;
    behave(0, false, false);
    assert_ok(manta_data_fetch("mnist", NULL, NULL, NULL, path, sizeof path));
    assert_string_equal(path, scratch_path("cache/manta/data/mnist"));
    assert_int_equal(access(scratch_path("cache/manta/data/mnist/t10k-labels-idx1-ubyte.gz"), R_OK), 0);
    setenv("MANTA_DATA", "/nowhere", 1);
    assert_ok(manta_dataset_open("mnist:test", NULL, &d));
    assert_int_equal(manta_dataset_count(d), 10000);
    manta_dataset_unref(d);
    assert_int_equal(manta_data_fetch("fashion-mnist", NULL, NULL, NULL, NULL, 0),
                     MANTA_ENOENT); /* not served */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_download_goes_on),
        cmocka_unit_test(a_server_without_ranges_sends_all_again),
        cmocka_unit_test(a_stale_part_is_fetched_again),
        cmocka_unit_test(a_wrong_checksum_is_corrupt),
        cmocka_unit_test(stopped_and_wrong_downloads_are_refused),
        cmocka_unit_test(a_builtin_dataset_is_fetched_and_opened),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
