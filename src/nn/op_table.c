/* op_table.c - built-in operations that a program's own layers find by name. */
#include <string.h>

#include "base/args.h"
#include "nn/ops.h"

const manta_op *manta_op_find(const char *name)
{
    REFUSE_NULL_OR(name, NULL);

    static const struct {
        const char *name;
        const manta_op *op;
    } table[] = {{"dense", &op_dense},       {"add", &op_add},         {"subtract", &op_subtract},
                 {"multiply", &op_multiply}, {"softmax", &op_softmax}, {"embedding", &op_embedding}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!strcmp(table[i].name, name)) return table[i].op;
    }
    return NULL;
}
