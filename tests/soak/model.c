/* model.c - see model.h. */
#include "model.h"

#include <string.h>

#include "program.h"

/* ---- bytes ---- */

static uint64_t word_at(uint64_t tag, uint64_t i)
{
    return (tag + i * 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
}

static uint64_t add_word(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * 0x100000001B3u;
    return sum ^ (sum >> 29);
}

void soak_fill(void *at, int64_t size, uint64_t tag)
{
    char *to = at;
    int64_t i = 0;

    for (; i + 8 <= size; i += 8) {
        uint64_t w = word_at(tag, (uint64_t)i / 8);
        memcpy(to + i, &w, 8);
    }
    uint64_t last = word_at(tag, (uint64_t)i / 8);
    if (i < size) memcpy(to + i, &last, (size_t)(size - i));
}

uint64_t soak_digest_of(const void *at, int64_t size)
{
    const char *from = at;
    uint64_t sum = (uint64_t)size, w;
    int64_t i = 0;

    for (; i + 8 <= size; i += 8) {
        memcpy(&w, from + i, 8);
        sum = add_word(sum, w);
    }
    w = 0;
    if (i < size) memcpy(&w, from + i, (size_t)(size - i));
    return add_word(sum, w);
}

uint64_t soak_digest(uint64_t tag, int64_t size)
{
    uint64_t sum = (uint64_t)size, w = 0;
    int64_t i = 0;

    for (; i + 8 <= size; i += 8) sum = add_word(sum, word_at(tag, (uint64_t)i / 8));
    uint64_t last = word_at(tag, (uint64_t)i / 8);
    memcpy(&w, &last, (size_t)(size - i));
    return add_word(sum, w);
}

/* ---- what functions compute ---- */

uint64_t soak_fold(uint64_t sum, uint64_t digest)
{
    return soak_mix(sum ^ digest);
}

soak_work soak_work_inner(const soak_work *w, int i)
{
    soak_work in = *w;

    in.key = SOAK_PART(w->key, i + 1);
    in.depth--;
    in.results = 1;
    in.refs = 0;
    return in;
}

uint64_t soak_value_digest(uint64_t tag, int64_t size, int refs)
{
    uint64_t sum = (uint64_t)refs;

    if (refs == 0) return soak_digest(tag, size);
    for (int i = 0; i < refs; i++) sum = soak_fold(sum, soak_digest(SOAK_PART(tag, i), size));
    return sum;
}

uint64_t soak_work_sum(const soak_work *w, const uint64_t *digests, int n)
{
    uint64_t sum = w->key;

    if (w->size >= 0) sum = soak_fold(sum, soak_digest(w->key, w->size));
    for (int i = 0; i < n; i++) sum = soak_fold(sum, digests[i]);
    if (w->depth <= 0) return sum;
    for (int i = 0; i < w->width; i++) {
        soak_work in = soak_work_inner(w, i);
        sum = soak_fold(sum, soak_digest(SOAK_PART(soak_work_sum(&in, NULL, 0), 0), w->result));
    }
    return sum;
}

/* ---- expectations ---- */

soak_expect soak_expect_of(int id)
{
    return (soak_expect){.depends = SOAK_BIT(id), .retries = SOAK_UNLIMITED};
}

void soak_expect_add(soak_expect *e, const soak_expect *from)
{
    e->must_fail |= from->must_fail;
    e->failures |= from->failures;
    e->depends |= from->depends;
    e->others |= from->others;
    if (from->retries < e->retries) e->retries = from->retries;
    e->mortal |= from->mortal;
    e->fragile |= from->fragile;
    e->needs_core |= from->needs_core;
}
