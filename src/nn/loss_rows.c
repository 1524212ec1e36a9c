/* loss_rows.c - the rows for every x86-64, and the choice between the two. */
#define ROWS loss_rows_plain
#include "nn/loss_rows.inc"

const loss_rows *loss_rows_of(void)
{
    /* Reads a word that was filled before main(); costs nothing worth keeping. */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &loss_rows_avx2
                                                                           : &loss_rows_plain;
}
