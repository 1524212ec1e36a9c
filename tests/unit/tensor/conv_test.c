/* conv_test.c - the convolutions of floats (conv_cases.h). */
#define OPERAND(x) (x)
#include "conv_cases.h"

static void chunks_depend_on_the_shape_alone(void **state)
{
    (void)state;
    conv_shape small = {64, 28, 28, 1, 26, 26, 32, 3, 3, 1, 1, 1, 1, 0, 0, 1};
    conv_shape large = {64, 7, 7, 64, 7, 7, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    assert_int_equal(conv_chunk(&small), 4);
    assert_int_equal(conv_chunk(&large), 64);
    small.n = 1;
    assert_int_equal(conv_chunk(&small), 1);
    assert_int_equal(conv_order(&small), CONV_SAMPLES_FIRST);
    assert_int_equal(conv_order(&large), CONV_POSITIONS_FIRST);
}

static int start(void **state)
{
    (void)state;
    families[n_families++] = (family){"reference", conv_forward_reference, conv_backward_data_reference,
                                      conv_backward_weights_reference, conv_work_reference};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        families[n_families++] = (family){"avx2", conv_forward_avx2, conv_backward_data_avx2,
                                          conv_backward_weights_avx2, conv_work_avx2};
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
        families[n_families++] = (family){"avx512", conv_forward_avx512, conv_backward_data_avx512,
                                          conv_backward_weights_avx512, conv_work_avx512};
    }
    return pools_start();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed_shapes),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(an_empty_batch_clears_the_gradient),
        cmocka_unit_test(chunks_depend_on_the_shape_alone),
    };

    return cmocka_run_group_tests(tests, start, pools_stop);
}
