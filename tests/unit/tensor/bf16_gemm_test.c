/* bf16_gemm_test.c - the matrix products of bfloat16 numbers (gemm_cases.h). */
#include "tensor/bf16.h"

#define OPERAND(x) bf16_round(x)
#include "gemm_cases.h"

static int start(void **state)
{
    (void)state;
    rounds = true;
    random_count = 120;
    for (int f = KERN_REFERENCE; f <= KERN_AVX512; f++) {
        const kernels *k = kernels_of((kern_family)f);
        if (!k) continue;
        k = kernels_in(k, KERN_BF16);
        families[n_families++] = (family){k->name, k->gemm, k->gemm_pair, true};
    }
    return pools_start();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tails_of_every_kind), cmocka_unit_test(every_row_and_column_count),
        cmocka_unit_test(blocks_and_tiles),    cmocka_unit_test(a_pair_is_two_products),
        cmocka_unit_test(nothing_to_do),       cmocka_unit_test(nan_survives_relu_and_reaches_every_family),
    };

    return cmocka_run_group_tests(tests, start, pools_stop);
}
