/* tensor/device.h - a place that computes and is not this processor.
 *
 * What lies on a device has an address, which is a number and never a pointer: the
 * host moves bytes to and from it by copies, and computes on it by launches of
 * kernels (tensor/device_kernels.h). There are two kinds: a GPU (src/gpu), and the
 * fake one (device_fake.c), whose memory faults when the host touches it, and which
 * runs the same bodies of kernels on the processor. What is made of launches must
 * give the same bytes on both, and the bytes of the processor's own kernels.
 *
 *     host                     device
 *     device_put   ---------->  memory            all of these are done in the order
 *     program_play ---------->  launches          in which they were asked for; the
 *     device_get   <----------  memory, waits     host waits in device_get() and
 *                                                 device_wait() alone
 *
 * A program is a list of launches whose arguments are fixed when it is made. What
 * changes from step to step (rate, seed, step) lies in device memory and is put
 * there; so a program can be played as often as one likes, and a device may make
 * one object of it (a CUDA graph).
 *
 * A device that has failed (a lost GPU, an illegal address) fails ever after, with
 * the sentence of the first failure.
 *
 * Threads: one call at a time. A device belongs to the process that opened it; a
 * forked child must not touch it. */
#ifndef TENSOR_DEVICE_H
#define TENSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/device_kernels.h"

enum {
    DEVICE_ALIGN = 256, /* bytes: where memory begins */
    DEVICE_ARGS = 512, /* bytes of a kernel's arguments at most */
};

/* One call of a kernel: its body is run for each item in [0, items), in any order and
 * at the same time. The items of a kernel in tiles are blocks of threads. */
typedef struct dev_launch {
    int kernel; /* dev_kernel of tensor/device_kernels.h */
    int64_t items;
    uint32_t size; /* bytes of args in use */
    _Alignas(16) char args[DEVICE_ARGS];
} dev_launch;

typedef struct device device;
typedef struct dev_program dev_program;

/* What a kind of device does; callers use the functions below. */
typedef struct device_ops {
    void (*close)(device *d);
    manta_status (*alloc)(device *d, size_t size, dev_addr *out); /* MANTA_ENOMEM without a sentence */
    void (*release)(device *d, dev_addr at);
    manta_status (*put)(device *d, dev_addr to, const void *from, size_t size);
    manta_status (*get)(device *d, void *to, dev_addr from, size_t size);
    manta_status (*copy)(device *d, dev_addr to, dev_addr from, size_t size);
    manta_status (*zero)(device *d, dev_addr at, size_t size);
    manta_status (*play)(device *d, dev_program *p);
    manta_status (*wait)(device *d);
    void (*forget)(device *d, dev_program *p); /* gives back what play() made of a program; optional */
} device_ops;

struct device {
    const device_ops *ops;
    char name[96]; /* as people call it: "NVIDIA H200", "fake device" */
    size_t memory; /* bytes in all */
    size_t used; /* bytes that were asked for and not given back */
};

struct dev_program {
    device *d;
    dev_launch *launches;
    int n, cap;
    void *made; /* the device's own, or NULL */
};

/* Opens the fake device with so many bytes of memory. A process has one at a time;
 * MANTA_EINVAL: there is one. */
manta_status device_fake_open(size_t memory, device **out) MANTA_MUST_USE;

void device_close(device *d); /* accepts NULL; all programs are freed before */

/* `size` zeroed bytes for `what` ("the state of the model"), given back by device_release().
 * MANTA_ENOMEM with what there is and what was wanted. */
manta_status device_alloc(device *d, size_t size, const char *what, dev_addr *out) MANTA_MUST_USE;
void device_release(device *d, dev_addr at, size_t size); /* accepts address 0 */

/* From the host: `from` may be changed as soon as it returns. */
manta_status device_put(device *d, dev_addr to, const void *from, size_t size) MANTA_MUST_USE;
/* To the host: waits for all that was asked for before. */
manta_status device_get(device *d, void *to, dev_addr from, size_t size) MANTA_MUST_USE;
manta_status device_copy(device *d, dev_addr to, dev_addr from, size_t size) MANTA_MUST_USE;
manta_status device_zero(device *d, dev_addr at, size_t size) MANTA_MUST_USE;
manta_status device_wait(device *d) MANTA_MUST_USE;

/* An empty program; freed by program_free(). */
dev_program *program_new(device *d);
void program_free(dev_program *p); /* accepts NULL */
/* Adds a launch. The arguments are copied; those of `kernel` have `size` bytes. Nothing is
 * added when there are no items. Not after the first play. */
void program_add(dev_program *p, int kernel, int64_t items, const void *args, size_t size);
manta_status program_play(dev_program *p) MANTA_MUST_USE;

#endif
