/* device_fake_avx2.c - the bodies of device kernels for AVX2 and FMA. */
#define RUN device_fake_run_avx2
#include "tensor/device_fake.inc"
