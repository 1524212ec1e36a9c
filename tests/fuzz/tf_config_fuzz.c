/* tf_config_fuzz.c - the environment variable TF_CONFIG. */
#include "fuzz.h"
#include "train/cluster/tf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    char *text = mem_strndup((const char *)data, size);
    tf_config c = {0};
    manta_status st = tf_config_parse(text, &c);

    fuzz_expect(st);
    if (!st && !c.local) {
        int rank = tf_config_rank(&c), n = tf_config_ranks(&c), index;
        tf_job type;
        if (rank >= n || (rank < 0 && c.type != TF_PS && c.type != TF_EVALUATOR)) abort();
        for (int r = 0; r < n; r++) {
            tf_config_task(&c, r, &type, &index);
            if (!c.address[type][index]) abort();
        }
    }
    tf_config_release(&c);
    mem_free(text);
    fuzz_balance(live);
    return 0;
}
