/* program.c - the program that most of the process-level tests run: its scenarios,
 * which lie by noun in the files beside it, and the node that each is run in. */
#include "scenario.h"

/* Nodes whose amounts a scenario counts on. */
static const manta_node_options three_cores = {.num_cpus = 3, .resources = "disk=2"};
static const manta_node_options two_cores = {.num_cpus = 2};
static const manta_node_options one_core = {.num_cpus = 1};
static const manta_node_options few_workers = {.num_cpus = 1, .max_workers = 5};
static const manta_node_options one_worker = {.num_cpus = 1, .max_workers = 1};
static const manta_node_options small_store = {.store_memory = 64 << 20};
static const manta_node_options small_workers = {
    .num_cpus = 3, .resources = "disk=2", .worker_memory = (uint64_t)150 << 20};
static const manta_node_options no_memory = {
    .num_cpus = 3, .resources = "disk=2", .memory_floor = UINT64_MAX};

static const scenario scenarios[] = {{"calls", scenario_calls, NULL},
                                     {"values", scenario_values, NULL},
                                     {"waits", scenario_waits, NULL},
                                     {"nested", scenario_nested, NULL},
                                     {"spread", scenario_spread, &three_cores},
                                     {"failures", scenario_failures, NULL},
                                     {"deaths", scenario_deaths, NULL},
                                     {"causes", scenario_causes, &three_cores},
                                     {"losses", scenario_losses, &three_cores},
                                     {"payloads", scenario_payloads, NULL},
                                     {"payloads-full", scenario_payloads_full, &small_store},
                                     {"codes", scenario_codes, NULL},
                                     {"codes-end", scenario_codes_end, &three_cores},
                                     {"actors", scenario_actors, NULL},
                                     {"concurrent", scenario_concurrent, NULL},
                                     {"leads", scenario_leads, NULL},
                                     {"pools", scenario_pools, NULL},
                                     {"lives", scenario_lives, &three_cores},
                                     {"options", scenario_options, &three_cores},
                                     {"yields", scenario_yields, &three_cores},
                                     {"unheard", scenario_unheard, NULL},
                                     {"thresholds", scenario_thresholds, NULL},
                                     {"deferred", scenario_deferred, NULL},
                                     {"deferred-ends", scenario_deferred_ends, NULL},
                                     {"exits", scenario_exits, NULL},
                                     {"exits-while-called", scenario_exits_while_called, NULL},
                                     {"concurrency-groups", scenario_concurrency_groups, NULL},
                                     {"streams", scenario_streams, NULL},
                                     {"references-in-streams", scenario_references_in_streams, &three_cores},
                                     {"groups", scenario_groups, &three_cores},
                                     {"group-owner", scenario_group_owner, &three_cores},
                                     {"contexts", scenario_contexts, &three_cores},
                                     {"devices", scenario_devices, &three_cores},
                                     {"cancels", scenario_cancels, &three_cores},
                                     {"memory", scenario_memory, NULL},
                                     {"full", scenario_full, &small_store},
                                     {"memory-limits", scenario_memory_limits, &small_workers},
                                     {"memory-short", scenario_memory_short, &no_memory},
                                     {"stay", scenario_stay, NULL},
                                     {"zygote", scenario_zygote, NULL},
                                     {"threads", scenario_threads, NULL},
                                     {"copied-while-called", scenario_copied_while_called, &three_cores},
                                     {"copied-while-ended", scenario_copied_while_ended, &three_cores},
                                     {"chaos", scenario_chaos, NULL},
                                     {"shutdown", scenario_shutdown, &one_core},
                                     {"threads-before", scenario_threads_before, &three_cores},
                                     {"words", scenario_words, &three_cores},
                                     {"forks", scenario_forks, &three_cores},
                                     {"closes-all", scenario_closes_all, &one_core},
                                     {"keeper", scenario_keeper, &three_cores},
                                     {"left-calls", scenario_left_calls, &three_cores},
                                     {"queues", scenario_queues, &three_cores},
                                     {"maps", scenario_maps, &three_cores},
                                     {"alike", scenario_alike, &three_cores},
                                     {"inner", scenario_inner, &three_cores},
                                     {"packed", scenario_packed, &three_cores},
                                     {"watches", scenario_watches, &three_cores},
                                     {"sizes", scenario_sizes, &three_cores},
                                     {"held-answers", scenario_held_answers, NULL},
                                     {"few-files", scenario_few_files, NULL},
                                     {"starved", scenario_starved, &one_worker},
                                     {"starved-polls", scenario_starved_polls, &one_worker},
                                     {"starved-looks", scenario_starved_looks, &one_worker},
                                     {"starved-loop", scenario_starved_loop, &one_worker},
                                     {"starved-queue", scenario_starved_queue, &one_worker},
                                     {"starved-once", scenario_starved_once, &one_worker},
                                     {"killed-early", scenario_killed_early, NULL},
                                     {"crowds", scenario_crowds, NULL},
                                     {"crowd-of-actors", scenario_crowd_of_actors, &one_core},
                                     {"ended-while-called", scenario_ended_while_called, NULL},
                                     {"ended-makers", scenario_ended_makers, &one_core},
                                     {"crowd-that-waits", scenario_crowd_that_waits, &two_cores},
                                     {"selves", scenario_selves, &three_cores},
                                     {"circles", scenario_circles, &three_cores},
                                     {"behind-the-dead", scenario_behind_the_dead, &three_cores},
                                     {"nested-deep", scenario_nested_deep, &three_cores},
                                     {"nested-ends", scenario_nested_ends, &three_cores},
                                     {"nested-values", scenario_nested_values, &three_cores},
                                     {"nested-waits", scenario_nested_waits, &three_cores},
                                     {"nested-cap", scenario_nested_cap, &few_workers}};

int main(int argc, char **argv)
{
    return scenario_main(argc, argv, scenarios, sizeof scenarios / sizeof scenarios[0]);
}
