/* cmd_key.c - manta key: a cluster key for one run. */
#include <manta/cluster.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/print.h"

static const option_group output = {
    "Output:", (const cli_option[]){{"json", OPTION_FLAG, NULL, "The path in a JSON object"}, {0}}};

static int make_key(const options *o)
{
    const char *path = options_arg(o, 0);

    if (!*path) cli_usage("key needs the name of a file, and '' is none");
    if (manta_cluster_key_make(path)) return cli_fail();
    if (options_flag(o, "json")) {
        json_emit(json_pack("{s:o}", "path", json_text(path)));
    } else {
        print_out("%s\n", path);
    }
    return CLI_DONE;
}

const command cmd_key = {
    .name = "key",
    .args = "FILE",
    .about = "Make a cluster key for one run",
    .text = "Writes a new random key to FILE, which only this user can read, and prints its path. What is "
            "there already is never replaced.\n\n"
            "Bring the file to every host of the run, for this user alone (scp -p keeps that), and name it "
            "there with --cluster-key FILE or MANTA_CLUSTER_KEY. Who has no copy can neither "
            "join the run nor read what is sent; processes of other runs have other keys.",
    .examples = "  manta key run.key && scp -p run.key other:\n"
                "  manta train mnist-cnn --data mnist --cluster-key run.key",
    .min_args = 1,
    .max_args = 1,
    .groups = {&output},
    .run = make_key,
};
