/* rendezvous_policy.c - the decisions of a rendezvous, without its connections. Pure. */
#include "net/rendezvous.h"

enum {
    PAUSE_MS = 20,
    PAUSE_MOST_MS = 1000,
    DOUBLINGS = 8,
    SILENT_TIMES = 4, /* calls, */
    SILENT_MS = 5000, /* over so long: a process that is being started again may close one or two */
};

bool rendezvous_calls(int self, int other)
{
    return self > other;
}

int64_t rendezvous_pause_ms(int tries)
{
    int64_t ms = (int64_t)PAUSE_MS << (tries < DOUBLINGS ? tries : DOUBLINGS);

    return ms < PAUSE_MOST_MS ? ms : PAUSE_MOST_MS;
}

bool rendezvous_is_final(manta_status st, bool called)
{
    if (!called) return false; /* whoever calls instead of it may fit */
    return st == MANTA_EPERM || st == MANTA_EINVAL;
}

bool rendezvous_is_silent(int times, int64_t ms, bool doubted)
{
    return doubted ? times > 0 : times >= SILENT_TIMES && ms >= SILENT_MS;
}

rendezvous_verdict rendezvous_judge(rendezvous_claim c)
{
    if (!c.known) return RENDEZVOUS_UNKNOWN;
    if (c.came && c.called) return RENDEZVOUS_BACKWARDS;
    if (!c.there) return RENDEZVOUS_ADMIT;
    return c.once ? RENDEZVOUS_TAKEN : RENDEZVOUS_REPLACE;
}
