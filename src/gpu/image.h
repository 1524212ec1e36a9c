/* gpu/image.h - the compiled kernels. */
#ifndef GPU_IMAGE_H
#define GPU_IMAGE_H

/* A fat binary, as cuModuleLoadData() takes it. */
extern const char gpu_image[];

#endif
