/* launch/manifest.h - what Kubernetes is to be told to run a launch, as YAML. Pure.
 *
 *   Service NAME, headless ── names NAME-0.NAME, NAME-1.NAME, ... also of pods that are not ready
 *   Job NAME, indexed ── pod NAME-0: manta launch --on pod:NAME --nodes N -- PROGRAM
 *                     └─ pod NAME-1: the same, with another JOB_COMPLETION_INDEX
 *   Secret NAME-key, not in it: a file with the key in each pod; a remark has the command that makes it
 *
 * What other code relies on:
 *
 * 1. No key is in the text, and no variable that is called like one. The program's words are, whatever they say.
 * 2. Texts that a user chose are in double quotes, escaped; in the program's words and in variables, where Kubernetes
 *    replaces $(NAME), with each $ twice. Names of objects are checked instead, since they are in the remarks as well.
 * 3. What is printed the pods accept: manifest_check_size() is asked by both. */
#ifndef LAUNCH_MANIFEST_H
#define LAUNCH_MANIFEST_H

#include <manta/tool_launch.h>

#include "base/buf.h"
#include "base/status.h"

#define MANIFEST_KEY_FOLDER "/run/manta/key" /* where a pod has its Secret */

enum { MANIFEST_MOST_NODES = 1024 };

/* Adds the manifests of a launch. MANTA_EINVAL: an option cannot be, or would put a secret into the text. */
manta_status manifest_put(const manta_launch_options *o, buf *out) MANTA_MUST_USE;

/* Refuses more pods, or more ranks in each, than a launch in pods can have: MANTA_EINVAL. Pure. */
manta_status manifest_check_size(const char *job, int nodes, int each) MANTA_MUST_USE;

/* Whether a text can be the name of a Job whose pods all have names: a to z, 0 to 9 and -, from a letter on. Pure. */
bool manifest_is_name(const char *text);

/* Adds a text in double quotes as YAML reads it, and as nothing else. */
void manifest_put_text(buf *out, const char *text);

#endif
