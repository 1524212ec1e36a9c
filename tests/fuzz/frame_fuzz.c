/* frame_fuzz.c - what arrives on a channel before and after the hello: heads of
 * frames and hellos. */
#include "net/frame.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    hello h, again;
    frame f;
    manta_status st;

    if (size >= FRAME_SIZE) {
        unsigned char back[FRAME_SIZE];
        fuzz_expect(st = frame_read(data, 1000, &f));
        if (!st && f.length > 1000) abort();
        if (!st) {
            frame g;
            frame_write(&f, back);
            if (frame_read(back, 1000, &g) || g.kind != f.kind || g.length != f.length || g.step != f.step)
                abort();
        }
    }
    fuzz_expect(st = hello_read(data, size, &h));
    if (!st) {
        buf b = {0};
        hello mine = h;
        mine.job[0] = 'x';
        fuzz_expect(hello_check(&mine, &h));
        if (h.n_word > FRAME_WORD || memchr(h.node, 0, sizeof h.node) == NULL) abort();
        hello_write(&h, &b);
        if (h.protocol == FRAME_PROTOCOL &&
            (hello_read(b.at, b.n, &again) || strcmp(again.node, h.node) || again.n_word != h.n_word))
            abort();
        buf_release(&b);
    }
    fuzz_balance(live);
    return 0;
}
