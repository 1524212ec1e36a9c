/* rates.c - how fast each rank trains. */
#include "cli/rates.h"

#include <stdio.h>
#include <string.h>

#include "cli/print.h"

/* The state of the workers now; in one process the event has all there is. */
static void look_at_workers(rates *r, const manta_session *s, const manta_event *e, manta_worker_work *to)
{
    for (int i = 0; i < r->ranks; i++) {
        if (!manta_session_worker_work(s, i, &to[i])) to[i] = (manta_worker_work){0};
    }
    r->samples = e->samples;
}

void rates_see(rates *r, const manta_session *s, const manta_event *e, int workers)
{
    if (!r->wanted) return;
    r->ranks = workers < 2 ? 0 : workers > RATES_RANKS ? RATES_RANKS : workers;
    switch (e->kind) {
    case MANTA_EVENT_EPOCH_BEGIN:
        r->seconds = 0;
        look_at_workers(r, s, e, r->begin);
        memcpy(r->now, r->begin, sizeof r->now);
        break;
    case MANTA_EVENT_STEP:
        r->seconds = e->seconds;
        look_at_workers(r, s, e, r->now);
        break;
    default: break;
    }
}

/* What a rank has trained in this epoch, a second; *share of the time it took, and
 * *data of it that it waited for samples. */
static double rate_of(const rates *r, int rank, int64_t *samples, double *share, double *data)
{
    *samples = r->ranks ? r->now[rank].samples - r->begin[rank].samples : r->samples;
    *share = *data = 0;
    if (!(r->seconds > 0)) return 0;
    *share = r->ranks ? (r->now[rank].seconds - r->begin[rank].seconds) / r->seconds : 1;
    *data = r->ranks ? (r->now[rank].data_seconds - r->begin[rank].data_seconds) / r->seconds : 0;
    if (*data > 1) *data = 1;
    if (*share > 1) *share = 1; /* the next step may have been begun */
    return (double)*samples / r->seconds;
}

static int count_workers(const rates *r)
{
    return r->ranks ? r->ranks : 1;
}

const char *rates_note(const rates *r, char *buf, size_t size)
{
    size_t at = 0;
    int64_t samples;
    double share, data;

    *buf = '\0';
    if (!r->wanted || r->ranks < 2) return buf;
    at += (size_t)snprintf(buf, size, " - ranks");
    for (int i = 0; i < r->ranks && at + 32 < size; i++)
        at += (size_t)snprintf(buf + at, size - at, " %.0f", rate_of(r, i, &samples, &share, &data));
    snprintf(buf + at, size - at, "/s");
    return buf;
}

void rates_print(const rates *r)
{
    for (int i = 0; r->wanted && i < count_workers(r); i++) {
        int64_t samples;
        double share, data, rate = rate_of(r, i, &samples, &share, &data);
        print_out("  rank %d: %.1f samples/s, computing %.0f %% of the time", i, rate, share * 100);
        if (r->ranks) print_out(", %.0f %% waiting for data", data * 100);
        print_out("\n");
    }
}

json_t *rates_json(const rates *r)
{
    json_t *all = json_array();

    for (int i = 0; i < count_workers(r); i++) {
        int64_t samples;
        double share, data, rate = rate_of(r, i, &samples, &share, &data);
        json_t *one = json_pack("{s:i, s:I}", "rank", i, "samples", (json_int_t)samples);
        json_object_set_new(one, "samples_per_s", json_number(rate));
        json_object_set_new(one, "computing", json_number(share));
        if (r->ranks) json_object_set_new(one, "data", json_number(data));
        json_array_append_new(all, one);
    }
    return all;
}
