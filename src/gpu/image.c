/* image.c - the compiled kernels, embedded as they are. The build names the file. */
#ifdef MANTA_GPU
#include "gpu/image.h"

__asm__(".section .rodata, \"a\", @progbits\n"
        ".balign 64\n"
        ".hidden gpu_image\n"
        ".global gpu_image\n"
        "gpu_image:\n"
        ".incbin \"" MANTA_GPU_IMAGE "\"\n"
        ".byte 0\n"
        ".previous\n");
#else
typedef int image_is_not_built;
#endif
