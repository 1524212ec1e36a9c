/* kernel.c - the tables of the kernel families, and which of them runs here. */
#include "base/suggest.h"
#include "tensor/kernel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "tensor/bf16.h"
#include "tensor/conv.h"
#include "tensor/elem.h"
#include "tensor/gemm.h"
#include "tensor/onednn.h"

/* Everything but the products, which have families of their own making. */
#define ELEM_ENTRIES(x)                                                                                      \
    .act_forward = act_forward_##x, .act_backward = act_backward_##x, .binary = binary_##x,                  \
    .axpby = axpby_##x, .round = round_##x, .col_sum = col_sum_##x, .bn_forward = bn_forward_##x,            \
    .bn_infer = bn_infer_##x, .bn_backward = bn_backward_##x, .bn_backward_frozen = bn_backward_frozen_##x,  \
    .ln_forward = ln_forward_##x, .ln_backward = ln_backward_##x, .softmax_forward = softmax_forward_##x,    \
    .softmax_backward = softmax_backward_##x, .max_pool_forward = max_pool_forward_##x,                      \
    .max_pool_backward = max_pool_backward_##x, .avg_pool_forward = avg_pool_forward_##x,                    \
    .avg_pool_backward = avg_pool_backward_##x, .gather = gather_##x, .scatter_add = scatter_add_##x,        \
    .update = update_##x, .square_sum = square_sum_##x

#define CONV_ENTRIES(x)                                                                                      \
    .conv_forward = conv_forward_##x, .conv_backward_data = conv_backward_data_##x,                          \
    .conv_backward_weights = conv_backward_weights_##x, .conv_work = conv_work_##x

#define PRODUCT_ENTRIES(x) .gemm = gemm_##x, .gemm_pair = gemm_pair_##x, CONV_ENTRIES(x)

#define BF16_ENTRIES(x)    .gemm = gemm_bf16_##x, .gemm_pair = gemm_pair_bf16_##x, CONV_ENTRIES(bf16_##x)

static const kernels kernels_reference = {
    .name = "reference", .family = KERN_REFERENCE, PRODUCT_ENTRIES(reference), ELEM_ENTRIES(reference)};
static const kernels kernels_avx2 = {
    .name = "avx2", .family = KERN_AVX2, PRODUCT_ENTRIES(avx2), ELEM_ENTRIES(avx2)};
static const kernels kernels_avx512 = {
    .name = "avx512", .family = KERN_AVX512, PRODUCT_ENTRIES(avx512), ELEM_ENTRIES(avx512)};

/* Products of bfloat16 numbers. Processors with AVX-512 but without BF16 multiply as those with AVX2 do. */
static const kernels bf16_reference = {.name = "reference",
                                       .family = KERN_REFERENCE,
                                       .precision = KERN_BF16,
                                       BF16_ENTRIES(reference),
                                       ELEM_ENTRIES(reference)};
static const kernels bf16_avx2 = {
    .name = "avx2", .family = KERN_AVX2, .precision = KERN_BF16, BF16_ENTRIES(avx2), ELEM_ENTRIES(avx2)};
static const kernels bf16_avx512 = {.name = "avx512",
                                    .family = KERN_AVX512,
                                    .precision = KERN_BF16,
                                    BF16_ENTRIES(avx2),
                                    ELEM_ENTRIES(avx512)};
static const kernels bf16_avx512bf16 = {.name = "avx512-bf16",
                                        .family = KERN_AVX512,
                                        .precision = KERN_BF16,
                                        BF16_ENTRIES(avx512bf16),
                                        ELEM_ENTRIES(avx512)};

#ifdef MANTA_ONEDNN
/* oneDNN's products; the rest are the fastest of our own that run here. */
static const kernels kernels_onednn_reference = {
    .name = "onednn", .family = KERN_ONEDNN, PRODUCT_ENTRIES(onednn), ELEM_ENTRIES(reference)};
static const kernels kernels_onednn_avx2 = {
    .name = "onednn", .family = KERN_ONEDNN, PRODUCT_ENTRIES(onednn), ELEM_ENTRIES(avx2)};
static const kernels kernels_onednn_avx512 = {
    .name = "onednn", .family = KERN_ONEDNN, PRODUCT_ENTRIES(onednn), ELEM_ENTRIES(avx512)};
#endif

/* What the processor runs, asked once: cpuid leaves a virtual machine, which takes microseconds. */
enum { ASKED = 1, HAS_AVX2 = 2, HAS_AVX512 = 4, HAS_AVX512BF16 = 8 };

static int ask_processor(void)
{
    int found = ASKED;

#if defined(__x86_64__)
    unsigned a, b, c, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    if (f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found |= HAS_AVX2;
    if ((found & HAS_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found |= HAS_AVX512;
    if ((found & HAS_AVX512) && __builtin_cpu_supports("avx512bf16")) found |= HAS_AVX512BF16;
#endif
    return found;
}

static bool can_run(int what)
{
    static _Atomic int known; /* any number of threads may find out at once; they find the same */
    int k = atomic_load_explicit(&known, memory_order_relaxed);

    if (!k) {
        k = ask_processor();
        atomic_store_explicit(&known, k, memory_order_relaxed);
    }
    return (k & what) != 0;
}

const kernels *kernels_of(kern_family f)
{
    switch (f) {
    case KERN_REFERENCE: return &kernels_reference;
    case KERN_AVX2: return can_run(HAS_AVX2) ? &kernels_avx2 : NULL;
    case KERN_AVX512: return can_run(HAS_AVX512) ? &kernels_avx512 : NULL;
    case KERN_ONEDNN:
#ifdef MANTA_ONEDNN
        if (!onednn_open(NULL)) return NULL;
        if (can_run(HAS_AVX512)) return &kernels_onednn_avx512;
        return can_run(HAS_AVX2) ? &kernels_onednn_avx2 : &kernels_onednn_reference;
#else
        return NULL;
#endif
    case KERN_FAMILIES: break;
    }
    return NULL;
}

const kernels *kernels_in(const kernels *k, kern_precision p)
{
    if (k->precision == p) return k;
    if (p == KERN_F32) return kernels_of(k->family);
    switch (k->family) {
    case KERN_REFERENCE: return &bf16_reference;
    case KERN_AVX2: return &bf16_avx2;
    case KERN_AVX512: return can_run(HAS_AVX512BF16) ? &bf16_avx512bf16 : &bf16_avx512;
    default: return NULL;
    }
}

static const kernels *find_fastest(void)
{
    const kernels *k = kernels_of(KERN_AVX512);

    if (!k) k = kernels_of(KERN_AVX2);
    return k ? k : &kernels_reference;
}

static bool is_auto(const char *name)
{
    return !name || !*name || !strcmp(name, "auto");
}

static manta_status fail_without(kern_family f, const char *name)
{
    if (f != KERN_ONEDNN)
        return manta_fail(MANTA_EUNSUPPORTED, "kernels '%s': this processor lacks the instructions", name);
#ifdef MANTA_ONEDNN
    const char *why;
    onednn_open(&why);
    return manta_fail(MANTA_EUNSUPPORTED,
                      "kernels '%s': oneDNN cannot be opened (%s); expected its library, "
                      "in Debian the package libdnnl2, or other kernels",
                      name, why);
#else
    return manta_fail(MANTA_EUNSUPPORTED, "kernels '%s': this build of Manta has no oneDNN", name);
#endif
}

manta_status kernels_find(const char *name, const kernels **out)
{
    static const char *const names[KERN_FAMILIES] = {"reference", "avx2", "avx512", "onednn"};
    char hint[SUGGEST_TEXT];

    if (is_auto(name)) name = getenv("MANTA_KERNELS");
    if (is_auto(name)) {
        *out = find_fastest();
        return MANTA_OK;
    }
    for (int f = 0; f < KERN_FAMILIES; f++) {
        if (strcmp(name, names[f]) != 0) continue;
        const kernels *k = kernels_of((kern_family)f);
        if (!k) return fail_without((kern_family)f, name);
        *out = k;
        return MANTA_OK;
    }
    return manta_fail(MANTA_EUNSUPPORTED, "kernels '%s': not one of reference, avx2, avx512, onednn, auto%s",
                      name, suggest_among(name, KERN_FAMILIES, names, hint, sizeof hint));
}

manta_status kernels_precision(const char *name, kern_precision *out)
{
    static const char *const names[] = {"exact", "float32", "mixed_bfloat16"};
    static const kern_precision precisions[] = {KERN_F32, KERN_F32, KERN_BF16};
    char hint[SUGGEST_TEXT];

    *out = KERN_F32;
    if (!name || !*name) return MANTA_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i])) continue;
        *out = precisions[i];
        return MANTA_OK;
    }
    if (!strcmp(name, "mixed_float16"))
        return manta_fail(MANTA_EUNSUPPORTED,
                          "precision 'mixed_float16': this processor has no products of float16, expected "
                          "exact, float32 or mixed_bfloat16");
    return manta_fail(MANTA_EINVAL, "precision '%.80s', expected exact, float32 or mixed_bfloat16%s", name,
                      suggest_among(name, sizeof names / sizeof *names, names, hint, sizeof hint));
}

const char *kernels_precision_name(kern_precision p)
{
    return p == KERN_BF16 ? "mixed_bfloat16" : "exact";
}
