/* tensor/device_fake.h - between the fake device and the bodies that it runs. */
#ifndef TENSOR_DEVICE_FAKE_H
#define TENSOR_DEVICE_FAKE_H

#include "tensor/device.h"

/* From the address that the host sees to where the fake device's memory can be read. */
extern uintptr_t device_fake_shift;

/* Runs the body of a launch for all its items, the last one first: whoever relies on an
 * order among items finds out. Compiled twice; the second for processors with AVX2 and FMA. */
void device_fake_run_reference(const dev_launch *l);
void device_fake_run_avx2(const dev_launch *l);

#endif
