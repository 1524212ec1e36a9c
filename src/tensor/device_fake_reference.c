/* device_fake_reference.c - the bodies of device kernels for plain x86-64. */
#define RUN device_fake_run_reference
#include "tensor/device_fake.inc"
