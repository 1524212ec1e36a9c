/* frame.h - what goes over a channel: frames, and the hello that opens it.
 * Pure: bytes in, values out, and back.
 *
 *   frame:  | magic 4 | kind 2 | flags 2 | generation 4 | sequence 4 | step 8 | item 4 | 0 4 | length 8 |
 *
 * then `length` bytes. Numbers are little-endian. */
#ifndef NET_FRAME_H
#define NET_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

enum {
    FRAME_SIZE = 40,
    FRAME_PROTOCOL = 2, /* version of everything below; both sides must have the same */
    FRAME_HELLO_MAX = 4096, /* bytes of a hello or a refusal */
    FRAME_NAME = 64, /* bytes of a job, a node, a profile */
    FRAME_WORD = 2048, /* bytes of what the user of a channel adds to the hello */
};

typedef enum frame_kind {
    FRAME_HELLO = 1, /* who I am */
    FRAME_REFUSE = 2, /* why I will not talk to you: a sentence */
    FRAME_PULSE = 3, /* I am here, and wait for `item`; no bytes */
    FRAME_USER = 16 /* the first kind that is free for users of channels */
} frame_kind;

enum { FRAME_PLAIN = 1 }; /* flag: the bytes that follow are not encrypted */

typedef struct frame {
    uint16_t kind;
    uint16_t flags; /* the channel's own */
    uint32_t generation; /* the channel's own */
    uint32_t sequence; /* the channel's own */
    uint64_t step; /* these two are the user's */
    uint32_t item;
    uint64_t length; /* bytes that follow */
} frame;

void frame_write(const frame *f, unsigned char out[FRAME_SIZE]);

/* MANTA_ECORRUPT: not a frame, or longer than `max`. */
manta_status frame_read(const unsigned char in[FRAME_SIZE], uint64_t max, frame *out) MANTA_MUST_USE;

/* What each side says first. */
typedef struct hello {
    uint32_t protocol;
    char version[FRAME_NAME]; /* version of the program, for people */
    char job[FRAME_NAME];
    char node[FRAME_NAME]; /* who speaks */
    char profile[FRAME_NAME]; /* arithmetic */
    uint64_t generation; /* the last one the speaker was part of; 0: none */
    bool plain; /* bulk goes unencrypted */
    uint32_t n_word; /* the user's own addition */
    unsigned char word[FRAME_WORD];
} hello;

void hello_write(const hello *h, buf *out);

/* MANTA_ECORRUPT: not a hello. Of another protocol only `protocol` and
 * `version` are read. */
manta_status hello_read(const void *data, size_t n, hello *out) MANTA_MUST_USE;

/* Whether `theirs` and `mine` can work together: same protocol, job, profile
 * and way of sending bulk; else MANTA_EPERM with a sentence about `theirs`. */
manta_status hello_check(const hello *mine, const hello *theirs) MANTA_MUST_USE;

#endif
