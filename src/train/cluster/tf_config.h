/* train/cluster/tf_config.h - who takes part in a job, as TensorFlow is told it: the
 * environment variable TF_CONFIG. Pure: text in, description out.
 *
 *   {"cluster": {"chief": ["h0:p"], "worker": ["h1:p", "h2:p"]}, "task": {"type": "worker", "index": 0}}
 *
 * Accepts what TensorFlow accepts and rejects what it rejects, and besides what
 * it only stumbles over later: duplicate addresses, addresses without a port,
 * negative indices, empty jobs. */
#ifndef TRAIN_CLUSTER_TF_CONFIG_H
#define TRAIN_CLUSTER_TF_CONFIG_H

#include <stdbool.h>

#include "base/status.h"

typedef enum tf_job { TF_CHIEF, TF_WORKER, TF_PS, TF_EVALUATOR, TF_JOBS } tf_job;

enum { TF_MAX_TASKS = 4096 }; /* of a job */

typedef struct tf_config {
    bool local; /* nobody else: train in this process alone */
    int n[TF_JOBS]; /* tasks of each job, from 0 to the highest index */
    char **address[TF_JOBS]; /* "host:port"; NULL where a sparse job names none */
    tf_job type;
    int index;
} tf_config;

/* Reads the text; NULL (unset) is local. *out: tf_config_release(). On failure
 * MANTA_EINVAL with a sentence that names the place in the text. */
manta_status tf_config_parse(const char *text, tf_config *out) MANTA_MUST_USE;
void tf_config_release(tf_config *c); /* accepts zeroed memory */

const char *tf_job_name(tf_job j);

/* Those that train in step: the chief, if there is one, then the workers. */
int tf_config_ranks(const tf_config *c);
/* This task's rank among them; -1 for ps and evaluator. */
int tf_config_rank(const tf_config *c);
/* Which task has a rank. */
void tf_config_task(const tf_config *c, int rank, tf_job *type, int *index);
/* Rank 0; an evaluator is its own. */
bool tf_config_is_chief(const tf_config *c);

#endif
