/* cancel.c - see cancel.h. */
#include "task/cancel.h"

#include <stdatomic.h>
#include <string.h>

cancel_step cancel_made(bool ended, bool sent, bool of_actor, unsigned how)
{
    if (ended) return CANCEL_NOTHING;
    if (!sent) return CANCEL_ABANDON;
    /* To kill its process would be to end the actor. */
    if (of_actor && (how & MANTA_CANCEL_FORCE)) return CANCEL_REFUSE;
    return CANCEL_TELL;
}

static atomic_bool keeps_values;

void manta_set_cancel_keeps(bool on)
{
    atomic_store(&keeps_values, on);
}

bool cancel_keeps(const char *function, bool of_actor)
{
    return (!of_actor && atomic_load(&keeps_values)) || !strncmp(function, "manta.queue", 11);
}

cancel_heard cancel_told(bool queued, bool running, unsigned how)
{
    bool all = !(how & MANTA_CANCEL_ALONE);

    return (cancel_heard){
        .answer = queued, .mark = running, .close = running && all, .spread = running && all};
}
