/* scenario.h - what the process-level tests have in common. A program of them takes
 * the name of a scenario, and with a second argument "inside" runs it without other
 * processes, with "nursery" with workers that are forks of another process of the same
 * program, which is started with the argument "nursery" alone. It prints the first thing that is not as it should be and exits 1. */
#ifndef RUNTIME_SCENARIO_H
#define RUNTIME_SCENARIO_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <manta/failure.h>
#include <manta/task.h>

#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        if (!(x)) {                                                                                          \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #x, manta_error_text());                           \
            fflush(stdout);                                                                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define OK(call)  CHECK((call) == MANTA_OK)
#define SAYS(txt) CHECK(strstr(manta_error_text(), txt))
#define LONG      240000 /* ms, for what must come; nothing takes nearly so long, but a machine may be busy */
/* ---- a program of scenarios ---- */

typedef struct scenario {
    const char *name;
    void (*run)(void);
    const manta_node_options *node; /* NULL: as the machine is */
} scenario;

/* Runs the scenario that the arguments name, in a node of its own or in the one
 * that MANTA_ADDRESS names; what main() returns. */
int scenario_main(int argc, char **argv, const scenario *all, size_t n);

extern bool inside; /* no other process: what needs one is left out */

/* ---- for scenarios ---- */

double now(void); /* seconds */
manta_failure failure_of(manta_ref r);
double available(const char *resource);

/* Files by which functions tell that they run. */
extern char folder[64];
void folder_make(void);
void folder_remove(void);
const char *path_of(const char *name); /* in it; valid until the next call */
manta_status touch(const char *path);
void until_there(const char *name);

void until_nothing_is_held(void); /* no object is left when nobody holds one */

/* remote.c: a method of its actor, for methods that do more. What scenarios call
 * by name needs no declaration. */
manta_status counter_add(manta_task *t);

/* ---- those of program.c ---- */

/* calls.c */
void scenario_calls(void);
void scenario_values(void);
void scenario_waits(void);
void scenario_nested(void);
void scenario_spread(void);
/* failures.c */
void scenario_failures(void);
void scenario_deaths(void);
void scenario_causes(void);
void scenario_losses(void);
/* ends.c */
void scenario_exits(void);
void scenario_exits_while_called(void);
void scenario_concurrency_groups(void);
/* payloads.c */
void scenario_payloads(void);
void scenario_payloads_full(void);
/* codes.c */
void scenario_codes(void);
void scenario_codes_end(void);
/* actors.c */
void scenario_actors(void);
void scenario_concurrent(void);
void scenario_leads(void);
void scenario_pools(void);
void scenario_lives(void);
void scenario_killed_early(void);
void scenario_crowds(void);
void scenario_crowd_of_actors(void);
void scenario_ended_while_called(void);
void scenario_ended_makers(void);
void scenario_crowd_that_waits(void);
void scenario_selves(void);
void scenario_circles(void);
void scenario_behind_the_dead(void);
/* options.c */
void scenario_options(void);
void scenario_yields(void);
void scenario_thresholds(void); /* sizes.c */
/* unheard.c */
void scenario_unheard(void);
/* deferred.c */
void scenario_deferred(void);
void scenario_deferred_ends(void);
/* streams.c */
void scenario_streams(void);
void scenario_references_in_streams(void);
/* groups.c */
void scenario_groups(void);
void scenario_group_owner(void);
void scenario_contexts(void);
void scenario_devices(void);
/* cancels.c */
void scenario_cancels(void);
/* memory.c */
void scenario_memory(void);
void scenario_full(void);
void scenario_memory_limits(void);
void scenario_memory_short(void);
/* processes.c */
void scenario_stay(void);
void scenario_zygote(void);
void scenario_threads(void);
void scenario_chaos(void);
void scenario_shutdown(void);
void scenario_threads_before(void);
void scenario_words(void);
void scenario_forks(void);
void scenario_closes_all(void);
void scenario_keeper(void);
void scenario_left_calls(void);
/* queues.c, maps.c, alike.c */
void scenario_queues(void);
void scenario_maps(void);
void scenario_alike(void);
/* inner.c */
void scenario_inner(void);
/* packed.c */
void scenario_packed(void);
/* watches.c */
void scenario_watches(void);
/* sizes.c */
void scenario_sizes(void);
void scenario_held_answers(void);
/* nested.c */
void scenario_nested_deep(void);
void scenario_nested_ends(void);
void scenario_nested_values(void);
void scenario_nested_waits(void);
void scenario_nested_cap(void);
/* copies.c */
void scenario_copied_while_called(void);
void scenario_copied_while_ended(void);
/* files.c */
void scenario_few_files(void);
/* starved.c */
void scenario_starved(void);
void scenario_starved_polls(void);
void scenario_starved_looks(void);
void scenario_starved_loop(void);
void scenario_starved_queue(void);
void scenario_starved_once(void);

#endif
