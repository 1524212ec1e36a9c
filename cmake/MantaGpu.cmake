# manta_gpu_kernels(): src/gpu/kernels.cu compiled by nvcc into one fat binary, which image.c
# embeds. Without nvcc of CUDA 12.0 or later, or with -DMANTA_GPU=OFF, the GPU family is left out, which is said
# here and at run time.
#
# Contraction and flushing of denormals are off, divisions and roots are rounded correctly: the bits
# are the processor's (docs/numerics.md).
set(MANTA_GPU_TARGETS "-gencode=arch=compute_90a,code=sm_90a;-gencode=arch=compute_80,code=compute_80" CACHE STRING
    "What GPU kernels are compiled for, as nvcc is told")
set(MANTA_GPU_KERNELS "" CACHE FILEPATH "A fat binary that another build of this tree has made; empty: nvcc makes one here")

# MANTA_NVCC and MANTA_CUDA_INCLUDE, of CUDA 12.0 or later; `lacks` becomes what is not there, or nothing.
function(manta_find_nvcc lacks)
  set(why "")
  if(NOT MANTA_GPU)
    set(why "MANTA_GPU is off")
  else()
    find_program(MANTA_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(NOT MANTA_NVCC)
      set(why "there is no nvcc")
    else()
      execute_process(COMMAND ${MANTA_NVCC} --version OUTPUT_VARIABLE said ERROR_QUIET)
      string(REGEX MATCH "release ([0-9.]+)" said "${said}")
      set(version "${CMAKE_MATCH_1}")
      get_filename_component(cuda_bin ${MANTA_NVCC} REALPATH)
      get_filename_component(cuda_bin ${cuda_bin} DIRECTORY)
      file(GLOB targets ${cuda_bin}/../targets/*/include)
      find_path(MANTA_CUDA_INCLUDE cuda.h HINTS ${cuda_bin}/../include ${targets})
      if(NOT version OR version VERSION_LESS 12.0)
        set(why "${MANTA_NVCC} is of CUDA '${version}', expected 12.0 or later")
      elseif(NOT MANTA_CUDA_INCLUDE)
        set(why "there is no cuda.h beside ${MANTA_NVCC}")
      endif()
    endif()
  endif()
  set(${lacks} "${why}" PARENT_SCOPE)
endfunction()

macro(manta_gpu_kernels)
  # The fake device's bodies are loops over single elements: optimised in every build, tests wait for them.
  # A sanitizer sees the same bodies in one of the two files, which takes most of a minute to compile then.
  if(MANTA_SANITIZE)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/tensor/device_fake_reference.c
                 APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=all)
  else()
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/tensor/device_fake_reference.c
                 ${CMAKE_SOURCE_DIR}/src/tensor/device_fake_avx2.c APPEND PROPERTY COMPILE_OPTIONS -O2)
  endif()
  manta_find_nvcc(gpu_lacks)
  if(NOT gpu_lacks AND TARGET manta_gpu)
    if(MANTA_GPU_KERNELS)
      set(gpu_image ${MANTA_GPU_KERNELS})
    else()
      set(gpu_image ${CMAKE_BINARY_DIR}/gpu/kernels.fatbin)
      file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/gpu)
      # A register that is spilled to memory is a warning, which none may be in ./check.
      set(gpu_spills -Xptxas -warn-spills)
      if(MANTA_WERROR)
        list(APPEND gpu_spills -Xptxas -Werror)
      endif()
      add_custom_command(OUTPUT ${gpu_image}
        COMMAND ${MANTA_NVCC} -std=c++17 -O3 ${gpu_spills} -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
                ${MANTA_GPU_TARGETS} -fatbin -MD -MF ${gpu_image}.d -MT ${gpu_image}
                -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
                -o ${gpu_image} ${CMAKE_SOURCE_DIR}/src/gpu/kernels.cu
        DEPENDS ${CMAKE_SOURCE_DIR}/src/gpu/kernels.cu DEPFILE ${gpu_image}.d
        COMMENT "Compiling kernels for GPUs" VERBATIM)
    endif()
    add_custom_target(manta_gpu_image DEPENDS ${gpu_image})
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/gpu/image.c PROPERTIES OBJECT_DEPENDS ${gpu_image})
    target_compile_definitions(manta_gpu PRIVATE MANTA_GPU MANTA_GPU_IMAGE="${gpu_image}")
    target_include_directories(manta_gpu SYSTEM PRIVATE ${MANTA_CUDA_INCLUDE})
    message(STATUS "Kernels for GPUs: ${MANTA_NVCC}")
  else()
    add_custom_target(manta_gpu_image)
    message(STATUS "Kernels for GPUs: left out (${gpu_lacks})")
  endif()
endmacro()
