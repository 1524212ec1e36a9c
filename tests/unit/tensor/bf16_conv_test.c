/* bf16_conv_test.c - the convolutions of bfloat16 numbers (conv_cases.h). */
#include "tensor/bf16.h"

#define OPERAND(x) bf16_round(x)
#include "conv_cases.h"

/* Pairs halve what is summed, so what reaches the thresholds is twice as deep. */
static void shapes_of_pairs(void **state)
{
    static const conv_shape pairs[] = {
        {1, 3, 3, 256, 3, 3, 70, 3, 3, 1, 1, 1, 1, 1, 1, 1}, /* several blocks of taps */
        {1, 3, 3, 70, 3, 3, 256, 3, 3, 1, 1, 1, 1, 1, 1, 1}, /* on the way back */
        {2, 1, 1, 1401, 1, 1, 64, 1, 1, 1, 1, 1, 1, 0, 0,
         1}, /* one tap in several blocks, and an odd channel */
        {3, 1, 1, 64, 1, 1, 1399, 1, 1, 1, 1, 1, 1, 0, 0, 1},
        {2, 4, 4, 129, 4, 4, 40, 1, 1, 1, 1, 1, 1, 0, 0, 1}, /* transposed in stretches of 128 pairs */
        {2, 4, 4, 40, 4, 4, 257, 1, 1, 1, 1, 1, 1, 0, 0, 1},
        {1, 2, 2, 20, 2, 2, 18, 1, 1, 1, 1, 1, 1, 0, 0, 2}, /* groups of even and of odd channels */
        {3, 5, 5, 15, 5, 5, 21, 3, 3, 1, 1, 1, 1, 1, 1, 3},
        {2, 6, 6, 16, 6, 6, 8, 3, 3, 1, 1, 1, 1, 1, 1, 8}, /* a pair for each output */
        {5, 90, 95, 4, 30, 32, 2, 2, 2, 3, 3, 1, 1, 0, 0, 1}, /* samples larger than a task that pairs them */
        {1, 91, 91, 4, 91, 91, 3, 1, 1, 1, 1, 1, 1, 0, 0, 1},
        {1, 200, 83, 2, 200, 83, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1},
        {301, 2, 2, 8, 2, 2, 16, 1, 1, 1, 1, 1, 1, 0, 0, 1}, /* an odd number of samples */
    };
    (void)state;

    random_state = 23;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) check(pairs[i]);
}

static int start(void **state)
{
    (void)state;
    rounds = true;
    most_steps = 400000;
    random_count = 60;
    for (int f = KERN_REFERENCE; f <= KERN_AVX512; f++) {
        const kernels *k = kernels_of((kern_family)f);
        if (!k) continue;
        k = kernels_in(k, KERN_BF16);
        families[n_families++] =
            (family){k->name, k->conv_forward, k->conv_backward_data, k->conv_backward_weights, k->conv_work};
    }
    return pools_start();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed_shapes),
        cmocka_unit_test(shapes_of_pairs),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(an_empty_batch_clears_the_gradient),
    };

    return cmocka_run_group_tests(tests, start, pools_stop);
}
