/* csv_fast.c - the plain case of a CSV file, fast. */
#include "format/csv/csv_fast.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/codec/sizes.h"
#include "os/cpu.h"

bool csv_slow_number(const csv_plan *p, const uint8_t *at, size_t n, double *out)
{
    char text[64], *end;

    while (n && (at[0] == ' ' || at[0] == '\t')) at++, n--;
    while (n && (at[n - 1] == ' ' || at[n - 1] == '\t')) n--;
    if (n == 0 || n >= sizeof text || memchr(at, 0, n)) return false;
    memcpy(text, at, n);
    text[n] = '\0';
    *out = strtod_l(text, &end, p->c_locale);
    return *end == '\0' && (p->allow_nan || *out == *out);
}

/* ---- without vectors ------------------------------------------------------------------ */

typedef struct doubt {
    char none; /* what it is sure of is exact */
} doubt;

static inline doubt doubt_none(void)
{
    return (doubt){0};
}

static inline bool doubt_any(const doubt *d)
{
    (void)d;
    return false;
}

#define KERNEL csv_kernel_base
#include "format/csv/csv_rows.inc"

static void find_ends(csv_rows *r)
{
    const uint8_t *at = r->at;
    uint32_t *ends = r->ends, *lines = r->lines;
    size_t n = r->n, count = 0, ln = 0;

    for (size_t i = 0; i < n; i++) {
        bool line = at[i] == '\n' || at[i] == '\r';
        ends[count] = (uint32_t)i;
        lines[ln] = (uint32_t)count;
        count += line || at[i] == ',';
        ln += line;
    }
    r->n_ends = count;
    r->n_lines = ln;
    r->odd[0] = UINT32_MAX;
}

static inline bool eight_small(const uint8_t *at, size_t from, const uint32_t *ends, float *x)
{
    (void)at;
    (void)from;
    (void)ends;
    (void)x;

    return false;
}

static bool all_fields(csv_rows *r)
{
    (void)r;
    return false;
}

static inline bool read_number(const uint8_t *at, size_t n, float *out, doubt *d)
{
    /* exact, as is every whole number below 2^53: one rounding, that of the division */
    static const double scale[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    bool negative = n && *at == '-';
    size_t i = negative, digits = 0, part = 0;
    uint64_t v = 0;

    (void)d;
    for (; i < n && (uint8_t)(at[i] - '0') < 10; i++, digits++) v = v * 10 + (uint64_t)(at[i] - '0');
    if (i < n && at[i] == '.') {
        for (i++; i < n && (uint8_t)(at[i] - '0') < 10; i++, part++) v = v * 10 + (uint64_t)(at[i] - '0');
    }
    if (i < n || digits + part == 0 || digits + part > 15) return false;
    float f = (float)((double)v / scale[part]);
    *out = negative ? -f : f;
    return true;
}

const csv_kernel *csv_kernel_at(int i)
{
#if defined(__x86_64__)
    static const csv_kernel *const kernels[] = {&csv_kernel_base, &csv_kernel_avx2, &csv_kernel_avx512};
#else
    static const csv_kernel *const kernels[] = {&csv_kernel_base};
#endif
    int best = (int)cpu_detect();

    return i <= best ? kernels[best - i] : NULL;
}

/* ---- blocks ----------------------------------------------------------------------------- */

typedef struct reading {
    const seek_file *f;
    const csv_plan *plan;
    const csv_kernel *kernel;
    uint8_t *memory, *block; /* size bytes, CSV_SLACK more on either side */
    size_t size, n; /* n bytes are there */
    uint64_t at; /* of the file: what comes next */
    int64_t most; /* rows that the file's bytes can hold */
    csv_rows r;
    csv_table *t;
} reading;

/* `old`, with room for `room` rows of `size` bytes. Not zeroed: all is written. */
static manta_status grow_rows(const reading *k, size_t size, int64_t room, void **out, void *old)
{
    size_t bytes;
    void *m = __builtin_mul_overflow(size, (size_t)room, &bytes) ? NULL : mem_try_raw(bytes + 1);

    if (!m) {
        return manta_fail(MANTA_ENOMEM, "%s: no memory for %lld rows of %zu bytes", k->f->path,
                          (long long)room, size);
    }
    if (k->r.rows) memcpy(m, old, (size_t)k->r.rows * size);
    mem_try_free(old);
    *out = m;
    return MANTA_OK;
}

/* Room for more rows, as many as the rest of the file will have if it goes on as
 * it began; never more than its bytes can hold. */
static manta_status make_room(reading *k, int64_t need)
{
    csv_table *t = k->t;
    uint64_t done = k->at - k->plan->begin, all = k->f->size - k->plan->begin;
    int64_t room = need;
    void *m = NULL;

    if (need <= k->r.room) return MANTA_OK;
    if (done && done < all) room = (int64_t)((double)need * ((double)all / (double)done) * 1.05) + 64;
    if (room > k->most) room = k->most;
    if (room < need) room = need; /* then the records are odd, and the kernel will say so */
    TRY(grow_rows(k, (size_t)t->columns * sizeof(float), room, &m, t->x));
    k->r.x = t->x = m;
    if (k->plan->label >= 0) {
        TRY(grow_rows(k, sizeof(double), room, &m, t->y));
        k->r.y = t->y = m;
    }
    k->r.room = room;
    return MANTA_OK;
}

/* Converts the complete records of the block and moves the rest to its front. */
static manta_status convert_block(reading *k, bool last, bool *odd)
{
    size_t n = k->n;

    if (last) {
        if (n && k->block[n - 1] != '\n' && k->block[n - 1] != '\r') k->block[n++] = '\n'; /* there is room */
    } else {
        while (n && k->block[n - 1] != '\n') n--;
    }
    if (n == 0) {
        *odd = !last; /* a record longer than a block */
        return MANTA_OK;
    }
    k->r.at = k->block;
    k->r.n = n;
    k->kernel->find(&k->r);
    int64_t lines = (int64_t)k->r.n_lines, most = (int64_t)(n / (2 * (size_t)k->plan->fields)) + 1;
    TRY(make_room(k, k->r.rows + (lines < most ? lines : most)));
    *odd = !k->kernel->convert(&k->r);
    if (*odd || last) return MANTA_OK;
    k->n -= n;
    if (k->n) memmove(k->block, k->block + n, k->n);
    return MANTA_OK;
}

static manta_status read_blocks(reading *k, bool *odd)
{
    bool last = false;

    while (!last && !*odd) {
        uint64_t left = k->f->size - k->at;
        size_t room = k->size - k->n, n = left < room ? (size_t)left : room;
        TRY(seek_read(k->f, k->at, k->block + k->n, n, "records"));
        k->n += n;
        k->at += n;
        last = k->at == k->f->size;
        TRY(convert_block(k, last, odd));
    }
    return MANTA_OK;
}

manta_status csv_fast_read(const seek_file *f, const csv_plan *p, csv_table *t, bool *whole, bool *odd)
{
    reading k = {.f = f, .plan = p, .at = p->begin, .t = t, .r = {.plan = p, .whole = true}};
    uint64_t left = f->size - p->begin;
    manta_status st = MANTA_OK;

    *odd = false;
    t->columns = p->fields - (p->label >= 0);
    k.most = (int64_t)(left / (2 * (uint64_t)p->fields)) + 1;
    k.kernel = p->kernel ? p->kernel : csv_kernel_at(0);
    k.size = left + 1 < CSV_FAST_BLOCK ? (size_t)left + 1 : CSV_FAST_BLOCK;
    k.memory = mem_try_raw(k.size + 1 + 2 * CSV_SLACK);
    k.r.ends = mem_try_raw((k.size + 1 + 72) * sizeof *k.r.ends);
    k.r.lines = mem_try_raw((k.size + 1 + 72) * sizeof *k.r.lines);
    k.r.odd = mem_try_raw((k.size / 64 + 3) * sizeof *k.r.odd);
    k.r.all = mem_try_raw((k.size + 1 + 8) * sizeof *k.r.all);
    k.r.unsure = mem_try_raw(k.size / 8 + 2);
    if (!k.memory || !k.r.ends || !k.r.lines || !k.r.odd || !k.r.all || !k.r.unsure) {
        st = manta_fail(MANTA_ENOMEM, "%s: no memory to read it with", f->path);
    } else {
        memset(k.memory, 0, k.size + 1 + 2 * CSV_SLACK);
        k.block = k.memory + CSV_SLACK;
        st = read_blocks(&k, odd);
    }
    mem_try_free(k.memory);
    mem_try_free(k.r.ends);
    mem_try_free(k.r.lines);
    mem_try_free(k.r.odd);
    mem_try_free(k.r.all);
    mem_try_free(k.r.unsure);
    t->rows = k.r.rows;
    *whole = k.r.whole;
    if (!st && !*odd) st = make_room(&k, 1); /* so that there is something to point at */
    if (st || *odd) csv_release(t);
    return st;
}
