/* talk_test.c - messages over pipes: whole, in pieces, too long, after noise; and lines with their rank. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "launch/address.h"
#include "launch/lines.h"
#include "launch/talk.h"
#include "os/sys.h"

typedef struct pair {
    int fds[2];
    talk from, to; /* `from` speaks, `to` hears */
} pair;

static void open_pair(pair *p, bool greets)
{
    assert_int_equal(pipe2(p->fds, O_CLOEXEC), 0);
    talk_init(&p->to, p->fds[0], p->fds[1], greets);
    talk_init(&p->from, p->fds[0], p->fds[1], false);
}

static void close_pair(pair *p)
{
    talk_release(&p->from);
    talk_release(&p->to);
    close(p->fds[0]);
    close(p->fds[1]);
}

/* Reads until a message is whole. */
static void hear(pair *p, talk_message *m)
{
    bool found = false;

    while (!found) {
        assert_int_equal(talk_write(&p->from), MANTA_OK);
        assert_int_equal(talk_read(&p->to), MANTA_OK);
        assert_int_equal(talk_next(&p->to, m, &found), MANTA_OK);
    }
}

static void messages_arrive(void **state)
{
    char *large = mem_new(TALK_MOST);
    int64_t live = mem_live();
    pair p;
    talk_message m;
    uint32_t rank;
    int stream;
    bool found;
    json_t *v;
    (void)state;

    open_pair(&p, false);
    talk_post(&p.from, TALK_PULSE, NULL, 0);
    talk_post_json(&p.from, TALK_AGAIN, json_pack("{s:i}", "rank", 3));
    hear(&p, &m);
    assert_int_equal(m.kind, TALK_PULSE);
    assert_int_equal(m.n, 0);
    hear(&p, &m);
    assert_int_equal(talk_json(&m, &v), MANTA_OK);
    assert_int_equal(json_integer_value(json_object_get(v, "rank")), 3);
    json_decref(v);
    memset(large, 7, TALK_MOST);
    talk_post(&p.from, TALK_KEY, large, TALK_MOST); /* more than a pipe holds */
    hear(&p, &m);
    assert_int_equal(m.n, TALK_MOST);
    assert_memory_equal(m.data, large, TALK_MOST);
    talk_post_output(&p.from, 70000, 2, "xy", 2);
    hear(&p, &m);
    assert_int_equal(talk_output(&m, &rank, &stream), MANTA_OK);
    assert_int_equal(rank, 70000);
    assert_int_equal(stream, 2);
    assert_memory_equal(m.data + TALK_OUTPUT_HEAD, "xy", 2);
    assert_int_equal(talk_next(&p.to, &m, &found), MANTA_OK);
    assert_false(found);
    close_pair(&p);
    assert_int_equal(mem_live(), live);
    mem_free(large);
}

static void a_greeting_is_found_in_noise(void **state)
{
    static const char noise[] = "Welcome to this machine\nmanta-agent ?\n";
    pair p;
    talk_message m;
    bool found;
    (void)state;

    open_pair(&p, true);
    assert_int_equal(write(p.fds[1], noise, strlen(noise)), strlen(noise));
    assert_int_equal(talk_read(&p.to), MANTA_OK);
    assert_int_equal(talk_next(&p.to, &m, &found), MANTA_OK);
    assert_false(found);
    assert_string_equal(talk_noise(&p.to), noise);
    for (int i = 0; i < 1000; i++) { /* an endless one is not kept */
        assert_int_equal(write(p.fds[1], noise, strlen(noise)), strlen(noise));
        assert_int_equal(talk_read(&p.to), MANTA_OK);
        assert_int_equal(talk_next(&p.to, &m, &found), MANTA_OK);
        assert_in_range(strlen(talk_noise(&p.to)), 1, 5000);
    }
    talk_greet(&p.from);
    talk_post(&p.from, TALK_CHECKED, NULL, 0);
    hear(&p, &m);
    assert_int_equal(m.kind, TALK_CHECKED);
    assert_string_equal(talk_noise(&p.to), "");
    close_pair(&p);
}

static void nonsense_is_refused(void **state)
{
    pair p;
    talk_message m = {.kind = TALK_GO, .data = "[1]", .n = 3};
    uint32_t rank;
    int stream;
    bool found;
    json_t *v;
    (void)state;

    open_pair(&p, false);
    assert_int_equal(write(p.fds[1], "\1\0\x10\0K", 5), 5); /* a byte more than is possible */
    assert_int_equal(talk_read(&p.to), MANTA_OK);
    assert_int_equal(talk_next(&p.to, &m, &found), MANTA_ECORRUPT);
    m = (talk_message){.kind = TALK_GO, .data = "[1]", .n = 3};
    assert_int_equal(talk_json(&m, &v), MANTA_ECORRUPT);
    m = (talk_message){.kind = TALK_GO, .data = "{", .n = 1};
    assert_int_equal(talk_json(&m, &v), MANTA_ECORRUPT);
    m = (talk_message){.kind = TALK_OUTPUT, .data = "1234", .n = 4};
    assert_int_equal(talk_output(&m, &rank, &stream), MANTA_ECORRUPT);
    close_pair(&p);
}

static void the_end_is_told(void **state)
{
    pair p;
    (void)state;

    open_pair(&p, false);
    close(p.fds[1]);
    assert_int_equal(talk_read(&p.to), MANTA_OK);
    assert_true(p.to.ended);
    assert_int_equal(open("/dev/null", O_RDONLY | O_CLOEXEC),
                     p.fds[1]); /* whoever closes it next closes ours */
    close_pair(&p);
}

static void lines_have_their_rank(void **state)
{
    sink s = {.fd = -1};
    lines a = {.to = &s, .prefix = "[rank 0] "}, b = {.to = &s, .prefix = "[rank 1] "};
    (void)state;

    lines_add(&a, "on", 2);
    lines_add(&b, "two\nthr", 7);
    lines_add(&a, "e\n\n", 3);
    lines_end(&b);
    lines_end(&a);
    assert_string_equal(buf_text(&s.waiting), "[rank 1] two\n[rank 0] one\n[rank 0] \n[rank 1] thr\n");
    buf_release(&s.waiting);
}

static void a_sink_does_not_wait_for_its_reader(void **state)
{
    int fds[2];
    sink s = {0};
    char data[4096];
    (void)state;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    s.fd = fds[1]; /* it blocks, as a terminal does */
    for (int i = 0; i < 1 << 18; i++) buf_add_char(&s.waiting, 'x');
    sink_write(&s);
    assert_in_range(s.waiting.n, 1, (1 << 18) - 1);
    assert_int_equal(read(fds[0], data, sizeof data), sizeof data);
    sink_write(&s);
    assert_false(s.lost);
    close(fds[0]);
    sink_write(&s); /* main() ignores SIGPIPE */
    assert_true(s.lost);
    assert_int_equal(s.waiting.n, 0);
    close(fds[1]);
    buf_release(&s.waiting);
}

static void ports_of_a_job(void **state)
{
    int fds[ADDRESS_CANDIDATES] = {0}, fd, got = 0;
    char text[ADDRESS_TEXT + 8], first[ADDRESS_TEXT + 8];
    (void)state;

    for (int k = 0; k < 1000; k++)
        assert_in_range(address_port("job", k, k % 8), ADDRESS_FIRST_PORT,
                        ADDRESS_FIRST_PORT + ADDRESS_PORTS - 1);
    assert_int_equal(address_port("a", 1, 2), address_port("a", 1, 2));
    assert_int_equal(address_listen("127.0.0.1", "talk_test", getpid(), &fd, first, sizeof first), MANTA_OK);
    fds[got++] = fd;
    while (got < ADDRESS_CANDIDATES) { /* the next ones are taken, until none is left */
        if (address_listen("127.0.0.1", "talk_test", getpid(), &fd, text, sizeof text)) break;
        assert_string_not_equal(text, first);
        fds[got++] = fd;
    }
    assert_int_equal(address_listen("127.0.0.1", "talk_test", getpid(), &fd, text, sizeof text), MANTA_EBUSY);
    assert_non_null(strstr(manta_error_text(), strchr(first, ':') + 1)); /* it names them */
    while (got) close(fds[--got]);
    assert_true(address_is_loopback("127.0.0.1:1") && address_is_loopback("[::1]:1"));
    assert_false(address_is_loopback("10.0.0.1:127"));
}

/* srun hands on to other nodes what the login node's sshd has said there. */
static void an_address_of_another_host_is_not_ours(void **state)
{
    char text[ADDRESS_TEXT];
    (void)state;

    unsetenv("SLURM_LAUNCH_NODE_IPADDR");
    setenv("SSH_CONNECTION", "192.0.2.1 5022 192.0.2.9 22", 1); /* addresses of documents: no host has them */
    assert_int_equal(address_find("127.0.0.3", false, text), MANTA_OK);
    assert_string_equal(text, "127.0.0.3");
    setenv("SSH_CONNECTION", "192.0.2.1 5022 127.0.0.1 22", 1);
    assert_int_equal(address_find("127.0.0.3", false, text), MANTA_OK);
    assert_string_equal(text, "127.0.0.1");
    setenv("SSH_CONNECTION", "UNKNOWN 65535 UNKNOWN 65535", 1);
    assert_int_equal(address_find("127.0.0.3", false, text), MANTA_OK);
    assert_string_equal(text, "127.0.0.3");
    unsetenv("SSH_CONNECTION");
}

/* One that is told to end does not wait for its reader: what does not fit is dropped. */
static void a_sink_that_drops(void **state)
{
    int fds[2];
    sink s;
    lines l = {.to = &s, .prefix = "> "};
    static char data[65536];
    (void)state;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    sink_open(&s, fds[1]);
    assert_true(s.own);
    assert_int_equal(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0); /* who else has it open notices nothing */
    memset(data, 'x', sizeof data);
    data[sizeof data - 1] = '\n';
    s.drops = true;
    for (int i = 0; i < 100; i++) lines_add(&l, data, sizeof data);
    assert_true(sink_is_full(&s));
    assert_in_range(s.waiting.n, LINES_FULL, LINES_FULL + 2 * sizeof data);
    sink_write(&s);
    assert_false(s.lost);
    close(fds[0]);
    sink_write(&s);
    assert_true(s.lost);
    assert_int_equal(s.why, EPIPE);
    lines_end(&l);
    sink_close(&s);
    close(fds[1]);
}

static void pulses_fit_into_a_lease(void **state)
{
    (void)state;

    assert_int_equal(talk_pulse_ms(30000), TALK_PULSE_MS);
    assert_int_equal(talk_pulse_ms(1000), 250);
    assert_in_range(talk_pulse_ms(1), 1, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive),       cmocka_unit_test(a_greeting_is_found_in_noise),
        cmocka_unit_test(nonsense_is_refused),   cmocka_unit_test(the_end_is_told),
        cmocka_unit_test(lines_have_their_rank), cmocka_unit_test(a_sink_does_not_wait_for_its_reader),
        cmocka_unit_test(ports_of_a_job),        cmocka_unit_test(an_address_of_another_host_is_not_ours),
        cmocka_unit_test(a_sink_that_drops),     cmocka_unit_test(pulses_fit_into_a_lease),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
