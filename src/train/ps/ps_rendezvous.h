/* train/ps/ps_rendezvous.h - how servers, coordinator and workers find each other.
 *
 *              calls                      is called by
 *   server     nobody                     the coordinator, all workers
 *   coordinator  all servers              all workers
 *   worker     all servers, coordinator   nobody; it does not listen
 *
 * All have the same nodes (net/rendezvous.h) with the same numbers: the servers, the
 * coordinator, the workers. So it is the higher number that calls. The word of each is
 * its settings (ps_config_check.h). Connections come and go one by one: whoever has lost
 * one misses that node alone. */
#ifndef TRAIN_PS_PS_RENDEZVOUS_H
#define TRAIN_PS_PS_RENDEZVOUS_H

#include "net/rendezvous.h"
#include "train/ps/ps_config_check.h"

/* Of server i the number is i. */
static inline int ps_node_coordinator(const ps_plan *p)
{
    return p->servers;
}

static inline int ps_node_worker(const ps_plan *p, int worker)
{
    return p->servers + 1 + worker;
}

/* The rendezvous of the process with number `self`, saying its settings; *t is filled in
 * and outlives it. The addresses of the plan are known by now. */
manta_status ps_rendezvous_open(const ps_plan *p, int self, ps_config_check *t,
                                rendezvous **out) MANTA_MUST_USE;

/* Tells of waiting for the coordinator since `begin`, often; `said`: in the log too.
 * Fails when it has been too long (MANTA_ETIMEDOUT) or the watcher has had enough. */
manta_status ps_miss_coordinator(const ps_plan *p, int64_t begin, bool *said) MANTA_MUST_USE;

#endif
