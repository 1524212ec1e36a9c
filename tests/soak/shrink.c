/* shrink.c - makes a program that fails smaller: operations are deleted, half of them at
 * first and single ones at last, then numbers are made 0 or halved and arguments left out,
 * until nothing more can go. Whatever is tried is a program (program.h). Failures may need
 * luck, so each candidate runs several times. */
#include "supervise.h"

typedef struct shrinker {
    soak_program best;
    soak_report last;
    double end;
    int tries, deadline_s, runs;
} shrinker;

static bool is_over(const shrinker *s)
{
    return soak_now() > s->end;
}

/* Takes the candidate if it fails as well. */
static bool take(shrinker *s, const soak_program *candidate)
{
    soak_report r;

    for (int i = 0; i < s->tries && !is_over(s); i++) {
        s->runs++;
        soak_supervise(candidate, s->deadline_s, &r);
        if (r.outcome != SOAK_BAD) continue;
        s->best = *candidate;
        s->last = r;
        return true;
    }
    return false;
}

static bool delete_ops(shrinker *s, int at, int n)
{
    soak_program c = s->best;

    for (int i = at; i + n < c.n; i++) c.op[i] = c.op[i + n];
    c.n -= n;
    return take(s, &c);
}

static bool shrink_ops(shrinker *s)
{
    bool any = false;

    for (int part = s->best.n / 2; part > 0; part /= 2) {
        for (int at = 1; at + part <= s->best.n && !is_over(s);) {
            if (delete_ops(s, at, part))
                any = true;
            else
                at += part;
        }
    }
    return any;
}

static bool shrink_number(shrinker *s, int op, int field)
{
    soak_program c = s->best;
    int64_t *x = &c.op[op].f[field];

    if (*x == 0) return false;
    *x = 0;
    if (take(s, &c)) return true;
    c = s->best;
    *x /= 2;
    return *x != 0 && take(s, &c);
}

static bool shrink_args(shrinker *s, int op)
{
    soak_program c = s->best;

    if (c.op[op].n_args < 2) return false;
    c.op[op].n_args--;
    return take(s, &c);
}

static bool shrink_numbers(shrinker *s)
{
    bool any = false;

    for (int op = s->best.n - 1; op >= 0; op--) {
        while (!is_over(s) && shrink_args(s, op)) any = true;
        for (int f = 0; f < SOAK_FIELDS; f++)
            while (!is_over(s) && shrink_number(s, op, f)) any = true;
    }
    return any;
}

int soak_shrink(soak_program *p, int seconds, int tries, int deadline_s, soak_report *last)
{
    shrinker s = {.best = *p, .last = *last, .end = soak_now() + seconds};
    bool any = true;

    s.tries = tries;
    s.deadline_s = deadline_s;
    while (any && !is_over(&s)) {
        any = shrink_ops(&s);
        any |= shrink_numbers(&s);
    }
    *p = s.best;
    *last = s.last;
    return s.runs;
}
