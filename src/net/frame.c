/* frame.c - see frame.h. */
#include "net/frame.h"

#include <string.h>

#include "net/wire.h"

static const unsigned char magic[4] = {'M', 'F', 'R', '1'};
static const char hello_magic[] = "manta hello";

/* ---- frames ---- */

void frame_write(const frame *f, unsigned char out[FRAME_SIZE])
{
    memset(out, 0, FRAME_SIZE);
    memcpy(out, magic, 4);
    memcpy(out + 4, &f->kind, 2);
    memcpy(out + 6, &f->flags, 2);
    memcpy(out + 8, &f->generation, 4);
    memcpy(out + 12, &f->sequence, 4);
    memcpy(out + 16, &f->step, 8);
    memcpy(out + 24, &f->item, 4);
    memcpy(out + 32, &f->length, 8);
}

manta_status frame_read(const unsigned char in[FRAME_SIZE], uint64_t max, frame *out)
{
    frame f;

    if (memcmp(in, magic, 4))
        return manta_fail(MANTA_ECORRUPT, "a message begins with %02x %02x %02x %02x, expected %.4s", in[0],
                          in[1], in[2], in[3], (const char *)magic);
    memcpy(&f.kind, in + 4, 2);
    memcpy(&f.flags, in + 6, 2);
    memcpy(&f.generation, in + 8, 4);
    memcpy(&f.sequence, in + 12, 4);
    memcpy(&f.step, in + 16, 8);
    memcpy(&f.item, in + 24, 4);
    memcpy(&f.length, in + 32, 8);
    if (f.length > max) {
        return manta_fail(MANTA_ECORRUPT, "a message has %llu bytes, where at most %llu are expected",
                          (unsigned long long)f.length, (unsigned long long)max);
    }
    *out = f;
    return MANTA_OK;
}

/* ---- hellos ---- */

void hello_write(const hello *h, buf *out)
{
    wire_put_text(out, hello_magic);
    wire_put_u32(out, h->protocol);
    wire_put_text(out, h->version);
    wire_put_text(out, h->job);
    wire_put_text(out, h->node);
    wire_put_text(out, h->profile);
    wire_put_u64(out, h->generation);
    wire_put_u8(out, h->plain);
    wire_put_bytes(out, h->word, h->n_word);
}

/* A name of printable characters that fits; else the message counts as broken. */
static void read_name(wire *w, char out[FRAME_NAME])
{
    size_t n;
    const char *s = wire_bytes(w, &n);

    out[0] = '\0';
    if (n >= FRAME_NAME) w->broken = true;
    if (w->broken || !n) return;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < ' ' || s[i] > '~') w->broken = true;
    }
    if (w->broken) return;
    memcpy(out, s, n);
    out[n] = '\0';
}

manta_status hello_read(const void *data, size_t n, hello *out)
{
    wire w = wire_of(data, n);
    char first[FRAME_NAME];
    hello h;
    const void *word;
    size_t n_word = 0;

    memset(&h, 0, sizeof h);
    read_name(&w, first);
    h.protocol = wire_u32(&w);
    read_name(&w, h.version);
    if (w.broken || strcmp(first, hello_magic)) return manta_fail(MANTA_ECORRUPT, "it does not say hello");
    if (h.protocol != FRAME_PROTOCOL) {
        *out = h;
        return MANTA_OK;
    }
    read_name(&w, h.job);
    read_name(&w, h.node);
    read_name(&w, h.profile);
    h.generation = wire_u64(&w);
    h.plain = wire_u8(&w) == 1;
    word = wire_bytes(&w, &n_word);
    if (w.broken || w.at != w.end || n_word > FRAME_WORD)
        return manta_fail(MANTA_ECORRUPT,
                          "its hello of %zu bytes is cut, too long, or has more in it than a hello", n);
    h.n_word = (uint32_t)n_word;
    if (n_word) memcpy(h.word, word, n_word);
    *out = h;
    return MANTA_OK;
}

manta_status hello_check(const hello *mine, const hello *theirs)
{
    if (theirs->protocol != mine->protocol) {
        return manta_fail(MANTA_EPERM, "it is Manta %s with protocol %u, this is Manta %s with protocol %u",
                          theirs->version, theirs->protocol, mine->version, mine->protocol);
    }
    if (strcmp(theirs->job, mine->job))
        return manta_fail(MANTA_EPERM, "it belongs to job %s, this is job %s", theirs->job, mine->job);
    if (strcmp(theirs->profile, mine->profile)) {
        return manta_fail(MANTA_EPERM,
                          "it computes with profile %s, this is profile %s: the same result could not be "
                          "kept",
                          theirs->profile, mine->profile);
    }
    if (theirs->plain != mine->plain) {
        return manta_fail(MANTA_EPERM,
                          "--insecure-bulk is given %s: give it to all processes of the job or to none",
                          theirs->plain ? "there and not here" : "here and not there");
    }
    return MANTA_OK;
}
