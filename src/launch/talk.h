/* launch/talk.h - messages between the launcher and an agent, over two pipes that a launcher of others made.
 *
 *   ┌──────────┬──────────┬─────────────┐
 *   │ n, 4 B   │ kind 1 B │ n bytes     │     the lowest byte of n first
 *   └──────────┴──────────┴─────────────┘
 *
 *   launcher ──────────────────────────────────────▶ agent
 *     TALK_SETUP    JSON: job, lease, ranks, by which name it is known, its first port where that is fixed
 *     TALK_KEY      64 hexadecimal digits
 *     TALK_CHECK    JSON: addresses of all others, to be reached
 *     TALK_GO       JSON: program, folder, variables, addresses of all ranks, which is the first here
 *     TALK_AGAIN    JSON: start a rank again
 *     TALK_SIGNAL   JSON: a signal for all ranks
 *     TALK_BYE      there is nothing more to do
 *   launcher ◀────────────────────────────────────── agent
 *     TALK_HELLO    JSON: version
 *     TALK_PORTS    JSON: addresses of its ranks
 *     TALK_CHECKED  all others were reached
 *     TALK_OUTPUT   rank 4 B, stream 1 B, bytes
 *     TALK_ENDED    JSON: rank and status
 *     TALK_ASKED    JSON: the agent was told to end by a signal of its own
 *     TALK_FAILED   JSON: step, what, remedy
 *   both: TALK_PULSE, every second, or four times within a lease that is shorter than that
 *
 * Before its first message an agent says the line TALK_GREETING: shells that start it may print whatever they like
 * before that. Descriptors do not block; nothing here waits. One thread. */
#ifndef LAUNCH_TALK_H
#define LAUNCH_TALK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

#define TALK_GREETING "manta-agent 1\n" /* with the version of these messages */

enum {
    TALK_MOST = 1 << 20, /* bytes of a message */
    TALK_OUTPUT_HEAD = 5,
    TALK_PULSE_MS = 1000 /* at most: talk_pulse_ms() */
};

typedef enum talk_kind {
    TALK_SETUP = 'S',
    TALK_KEY = 'K',
    TALK_CHECK = 'C',
    TALK_GO = 'G',
    TALK_AGAIN = 'A',
    TALK_SIGNAL = 'T',
    TALK_BYE = 'B',
    TALK_HELLO = 'h',
    TALK_PORTS = 'p',
    TALK_CHECKED = 'c',
    TALK_OUTPUT = 'o',
    TALK_ENDED = 'e',
    TALK_ASKED = 'a',
    TALK_FAILED = 'f',
    TALK_PULSE = '.'
} talk_kind;

typedef struct talk {
    int in, out; /* borrowed; -1: closed */
    bool greeted; /* the greeting has come, or none is expected */
    bool ended; /* the other side's end has come */
    buf inbox, outbox;
    size_t taken, sent; /* of them */
    int64_t heard_ns; /* when something came */
} talk;

typedef struct talk_message {
    talk_kind kind;
    const char *data; /* borrowed until the next call */
    size_t n;
} talk_message;

/* Begins to talk over two descriptors, which do not block from now on. */
void talk_init(talk *t, int in, int out, bool expects_greeting);
void talk_release(talk *t); /* closes nothing; accepts zeroed memory */

/* Reads what has come. MANTA_EIO: it cannot be read. The end of the other side is t->ended. */
manta_status talk_read(talk *t) MANTA_MUST_USE;

/* Takes the next whole message; false when there is none. MANTA_ECORRUPT: what has come is no message. Before the
 * greeting what comes is kept as noise: talk_noise(). */
manta_status talk_next(talk *t, talk_message *out, bool *found) MANTA_MUST_USE;

/* How often something must be said where silence for `lease_ms` means death. Pure. */
int talk_pulse_ms(int64_t lease_ms);

/* What came instead of the greeting, its end at most. Borrowed until the next call. */
const char *talk_noise(talk *t);

/* Puts a message behind those that wait to be sent. */
void talk_post(talk *t, talk_kind kind, const void *data, size_t n);
void talk_post_json(talk *t, talk_kind kind, json_t *takes); /* gives the value back */
void talk_greet(talk *t);

/* Sends as far as it goes. MANTA_EDIED: nobody reads. */
manta_status talk_write(talk *t) MANTA_MUST_USE;
size_t talk_waiting(const talk *t); /* bytes that are not sent */

/* The JSON object in a message. *out: json_decref(). MANTA_ECORRUPT: there is none. */
manta_status talk_json(const talk_message *m, json_t **out) MANTA_MUST_USE;

/* Rank and stream of TALK_OUTPUT; the bytes are behind TALK_OUTPUT_HEAD. MANTA_ECORRUPT: too short. */
manta_status talk_output(const talk_message *m, uint32_t *rank, int *stream) MANTA_MUST_USE;
void talk_post_output(talk *t, uint32_t rank, int stream, const void *data, size_t n);

#endif
