# manta_folder(NAME [SEES folders...] [LIBS libraries...]): the static library
# manta_NAME of src/NAME/*.c and of its rooms, src/NAME/*/*.c. A file whose name
# ends in _avx2.c, _avx512.c or _avx512bf16.c is compiled for that instruction set;
# nothing else may use one without asking the processor first.
include(CheckCCompilerFlag)

set(MANTA_WARNINGS -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wpointer-arith -Wwrite-strings -Wvla)
# Whole numbers have their names from enum {} here, also in arithmetic with doubles;
# clang 18 and later count that among the conversions.
check_c_compiler_flag(-Wenum-float-conversion MANTA_KNOWS_ENUM_FLOAT)
if(MANTA_KNOWS_ENUM_FLOAT)
  list(APPEND MANTA_WARNINGS -Wno-enum-float-conversion)
endif()
set(MANTA_FOLDERS "")

# Contraction would let the compiler choose which products are fused, and so
# the last bit of a sum; where we want fma we say fma (docs/numerics.md).
function(manta_compile_options target)
  target_compile_options(${target} PRIVATE ${MANTA_WARNINGS} -ffp-contract=off -fno-math-errno
                         -fno-trapping-math -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  # With sanitizers gcc warns of what its own instrumentation makes; the builds without them are the judges.
  if(MANTA_WERROR AND NOT MANTA_SANITIZE)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(MANTA_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${MANTA_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${MANTA_SANITIZE})
    if(MANTA_SANITIZE MATCHES thread AND CMAKE_C_COMPILER_ID STREQUAL GNU)
      # It does not know fences; what they order is in atomic words as well.
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
  if(MANTA_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    # Checksums in front of a parser (HDF5's) would keep fuzzing out of it.
    target_compile_definitions(${target} PRIVATE FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION)
  endif()
endfunction()

macro(manta_folder name)
  cmake_parse_arguments(ARG "" "" "SEES;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.c ${CMAKE_SOURCE_DIR}/src/${name}/*/*.c)
  if(sources)
    add_library(manta_${name} STATIC ${sources})
    manta_compile_options(manta_${name})
    target_include_directories(manta_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_compile_definitions(manta_${name} PRIVATE MANTA_BUILDING)
    foreach(seen ${ARG_SEES})
      if(TARGET manta_${seen})
        target_link_libraries(manta_${name} PUBLIC manta_${seen})
      endif()
    endforeach()
    target_link_libraries(manta_${name} PUBLIC ${ARG_LIBS})
    foreach(source ${sources})
      if(source MATCHES "_avx2\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
      elseif(source MATCHES "_avx512\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx2;-mfma;-mf16c;-mprefer-vector-width=512")
      elseif(source MATCHES "_avx512bf16\\.c$")
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
          "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512bf16;-mavx2;-mfma;-mf16c;-mprefer-vector-width=512")
      endif()
    endforeach()
    if(MANTA_SANITIZE)
      manta_quick_kernels(${sources})
    endif()
    list(APPEND MANTA_FOLDERS ${name})
  endif()
endmacro()

# Kernels are long straight lines of memory accesses, which sanitizers make many times longer: with -O2 four
# of them took most of the time of a sanitized build. Fuzz targets compute nothing, so there kernels are plain.
function(manta_quick_kernels)
  foreach(source ${ARGN})
    if(source MATCHES "_(avx2|avx512|avx512bf16|reference)\\.c$")
      set(quick -O1)
      if(MANTA_FUZZ)
        set(quick -fno-sanitize=all)
      endif()
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${quick})
    endif()
  endforeach()
endfunction()

# libmanta.so: the objects of every folder. The folders are also linked, after
# their objects, only so that their libraries (zlib, oneDNN, ...) come along;
# nothing is left for the linker to take from the archives themselves.
macro(manta_shared_library)
  if(MANTA_FOLDERS)
    set(objects "")
    set(archives "")
    foreach(name ${MANTA_FOLDERS})
      list(APPEND objects $<TARGET_OBJECTS:manta_${name}>)
      list(APPEND archives manta_${name})
    endforeach()
    add_library(manta SHARED ${objects})
    # While the major version is 0 a minor one may change the interface: both are in the name.
    set(soversion ${PROJECT_VERSION_MAJOR})
    if(PROJECT_VERSION_MAJOR EQUAL 0)
      set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    endif()
    set_target_properties(manta PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${soversion}
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} LINKER_LANGUAGE C)
    target_include_directories(manta INTERFACE
      $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(manta PRIVATE ${archives})
    if(MANTA_SANITIZE)
      # Sanitizer runtimes are resolved in the program, so --no-undefined is not for them.
      target_link_options(manta PRIVATE -fsanitize=${MANTA_SANITIZE})
    else()
      target_link_options(manta PRIVATE -Wl,--no-undefined)
    endif()
  endif()
endmacro()

# manta-node, from src/node: linked with the folders that it needs and with none of the libraries that
# it does not, so that it starts in a millisecond. It lies beside libmanta.so, which looks for it there.
macro(manta_node_program)
  if(TARGET manta_task AND TARGET manta)
    add_executable(manta_node ${CMAKE_SOURCE_DIR}/src/node/manta_node.c)
    set_target_properties(manta_node PROPERTIES OUTPUT_NAME manta-node RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    manta_compile_options(manta_node)
    target_link_libraries(manta_node PRIVATE manta_task)
    target_link_options(manta_node PRIVATE -Wl,--as-needed)
    add_dependencies(manta manta_node)
  endif()
endmacro()

# The program, from src/cli: it links libmanta.so and sees only include/.
# share/manta/data beside it stands in for the installed data folder, so that
# a program in the build tree finds the bundled data as an installed one does,
# and no path of the source tree is compiled in (docs/architecture.md).
macro(manta_program)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.c)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/manta)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/data ${CMAKE_BINARY_DIR}/share/manta/data SYMBOLIC)
  if(sources AND TARGET manta)
    add_executable(manta_cli ${sources})
    set_target_properties(manta_cli PROPERTIES OUTPUT_NAME manta
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
      INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    manta_compile_options(manta_cli)
    target_include_directories(manta_cli PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_include_directories(manta_cli SYSTEM PRIVATE ${CAIRO_INCLUDE_DIRS})
    target_link_libraries(manta_cli PRIVATE m ${CMAKE_DL_LIBS} manta PkgConfig::JANSSON)
  endif()
endmacro()

# examples/NAME.c and examples/NAME/NAME.c become the program NAME, linked as a user's would be.
macro(manta_examples)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/*.c ${CMAKE_SOURCE_DIR}/examples/*/*.c)
  foreach(source ${sources})
    if(TARGET manta)
      get_filename_component(name ${source} NAME_WE)
      add_executable(example_${name} ${source})
      set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
                            RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)
      manta_compile_options(example_${name})
      target_link_libraries(example_${name} PRIVATE manta)
    endif()
  endforeach()
endmacro()

# bench/NAME.c becomes the program bench_NAME, which may look inside any folder.
macro(manta_bench)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
  foreach(source ${sources})
    if(MANTA_FOLDERS)
      get_filename_component(name ${source} NAME_WE)
      add_executable(bench_${name} ${source})
      set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
      manta_compile_options(bench_${name})
      foreach(folder ${MANTA_FOLDERS})
        target_link_libraries(bench_${name} PRIVATE manta_${folder})
      endforeach()
    endif()
  endforeach()
endmacro()
