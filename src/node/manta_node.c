/* manta_node.c - manta-node, the keeper and the daemon of programs that have a nursery
 * (manta/nursery.h). It is linked with the parts of the library that it needs, and not with the
 * library, so that it is there in a millisecond. */
#include "task/node_program.h"

int main(void)
{
    return node_program_main();
}
