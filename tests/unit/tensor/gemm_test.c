/* gemm_test.c - the matrix products of floats (gemm_cases.h). */
#define OPERAND(x) (x)
#include "gemm_cases.h"

static int start(void **state)
{
    (void)state;
    families[n_families++] = (family){"reference", gemm_reference, gemm_pair_reference, true};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        families[n_families++] = (family){"avx2", gemm_avx2, gemm_pair_avx2, true};
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
        families[n_families++] = (family){"avx512", gemm_avx512, gemm_pair_avx512, true};
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
