/* keras_fuzz.c - Keras's configurations: models, layers, compile settings. What
 * is read is written and read again. The archive around them is npz_fuzz.c's. */
#include "format/keras/keras_compile.h"
#include "format/keras/keras_config.h"
#include "fuzz.h"

static void write_again(const manta_model *m)
{
    keras_tree *t = keras_tree_new(m);
    keras_variables v = {0};
    json_t *config = NULL;
    manta_model *again = NULL;
    manta_status st;

    keras_tree_variables(t, &v, NULL);
    keras_variables_release(&v);
    st = keras_config_write(t, false, &config);
    fuzz_expect(st);
    if (!st) {
        st = keras_config_read("again", config, &again);
        fuzz_expect(st);
        if (!st && manta_model_params(again, false) != manta_model_params(m, false)) abort();
    }
    manta_model_free(again);
    json_decref(config);
    keras_tree_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    json_t *config = NULL;
    manta_model *m = NULL;
    manta_status st = keras_json_parse("fuzz", (const char *)data, size, &config);

    fuzz_expect(st);
    if (!st) {
        st = keras_config_read("fuzz", config, &m);
        fuzz_expect(st);
    }
    if (!st) {
        manta_saved *s = mem_new(sizeof *s);
        keras_compile_read(s, "fuzz", json_object_get(config, "compile_config"), m);
        manta_saved_free(s);
        if (manta_model_variables(m) < 1000) write_again(m);
    }
    manta_model_free(m);
    json_decref(config);
    fuzz_balance(live);
    return 0;
}
