/* loss_rows_avx2.c - the rows for processors with AVX2 and FMA. */
#define ROWS loss_rows_avx2
#include "nn/loss_rows.inc"
