/* tensor/act.h - activations and their slopes, one number at a time: for the vector loops of
 * elem.inc and for the bodies of device kernels. */
#ifndef TENSOR_ACT_H
#define TENSOR_ACT_H

#include "tensor/vmath.h"

/* relu as everywhere in Manta: NaN stays NaN, and -0 is left as it is. */
VM_FN float relu1(float v)
{
    return 0.0f > v ? 0.0f : v;
}

VM_FN float gelu_tanh_arg(float v) /* twice the argument of the tanh */
{
    return 1.59576912f * vm_fma(0.044715f * v * v, v, v); /* 2 sqrt(2/pi) (v + 0.044715 v^3) */
}

VM_FN float elu1(float v, float alpha)
{
    float e = alpha * vm_expm1_neg(v > 0.0f ? 0.0f : v);

    return v > 0.0f ? v : e;
}

VM_FN float hard_sigmoid1(float v)
{
    float s = vm_fma(v, 0.166666667f, 0.5f);

    s = s < 0.0f ? 0.0f : s; /* NaN stays NaN */
    return s > 1.0f ? 1.0f : s;
}

/* d/dv v cdf(v) = cdf(v) + v density(v) */
VM_FN float gelu_slope(float v)
{
    float density, cdf = vm_cdf(v, &density);

    return vm_fma(v, density, cdf);
}

/* d/dv v s(u(v)) = s + v s (1 - s) u' */
VM_FN float gelu_tanh_slope(float v)
{
    v = v > 30.0f ? 30.0f : v; /* s is 0 or 1 there, and v u' must not overflow */
    v = v < -30.0f ? -30.0f : v;
    float s = vm_sigmoid(gelu_tanh_arg(v));
    float du = vm_fma(0.214064449f * v, v, 1.59576912f); /* 3 * 0.044715 * 1.595769 */
    return vm_fma(v * du, s * (1.0f - s), s);
}

VM_FN float silu_slope(float v)
{
    float s = vm_sigmoid(v);

    return vm_fma(v * s, 1.0f - s, s);
}

VM_FN float hard_sigmoid_slope(float v)
{
    return v > -3.0f && v < 3.0f ? 0.166666667f : 0.0f;
}

#endif
