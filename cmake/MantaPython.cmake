# manta_python(): the CPython extension manta._manta, of src/python/*.c, with -DMANTA_PYTHON=ON.
#
# It is compiled against the limited API of Python 3.11, so that one file serves 3.11 and all
# that follow, and sees include/ alone, as every program does. In the build tree
# BUILD/python/manta is a folder of links to python/manta/* with the extension beside them:
# PYTHONPATH=BUILD/python is all that a program needs to try what was just edited. The component
# `python` of `cmake --install` is what a wheel holds besides the Python files
# (pyproject.toml): the extension, and in manta/_lib the library and the programs.

option(MANTA_PYTHON "Build the Python extension (Python 3.11 or newer, with headers)" OFF)

# Links to the Python files, whole folders among them, beside the extension.
function(manta_python_tree folder)
  file(MAKE_DIRECTORY ${folder})
  file(GLOB entries CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/manta/*)
  foreach(entry ${entries})
    get_filename_component(name ${entry} NAME)
    if(NOT name STREQUAL "__pycache__")
      file(CREATE_LINK ${entry} ${folder}/${name} SYMBOLIC)
    endif()
  endforeach()
endfunction()

# A program of the wheel's manta/_lib, which finds the library beside itself.
macro(manta_python_program target)
  if(TARGET ${target})
    # It may be started at run time, so whoever builds the extension wants it too.
    add_dependencies(manta_python ${target})
    if(SKBUILD)
      set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
    endif()
    install(TARGETS ${target} COMPONENT python EXCLUDE_FROM_ALL RUNTIME DESTINATION manta/_lib)
  endif()
endmacro()

macro(manta_python)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/python/*.c)
  if(MANTA_PYTHON AND sources AND TARGET manta)
    find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
    manta_python_tree(${CMAKE_BINARY_DIR}/python/manta)
    add_library(manta_python MODULE ${sources})
    manta_compile_options(manta_python)
    # Headers of CPython are another house's: no warnings of ours apply there.
    target_include_directories(manta_python SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
    target_include_directories(manta_python PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_compile_definitions(manta_python PRIVATE Py_LIMITED_API=0x030B0000)
    target_link_libraries(manta_python PRIVATE manta)
    set_target_properties(manta_python PROPERTIES PREFIX "" OUTPUT_NAME _manta SUFFIX .abi3.so
      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/manta INSTALL_RPATH "$ORIGIN/_lib")
    install(TARGETS manta_python COMPONENT python EXCLUDE_FROM_ALL LIBRARY DESTINATION manta)
    # A wheel has no links: the library goes there once, under the name that it is looked for by.
    install(FILES $<TARGET_FILE:manta> RENAME $<TARGET_SONAME_FILE_NAME:manta> DESTINATION manta/_lib
            PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
            COMPONENT python EXCLUDE_FROM_ALL)
    manta_python_program(manta_cli)
    manta_python_program(manta_node)
    # All that PYTHONPATH=BUILD/python needs.
    add_custom_target(python DEPENDS manta_python)
  endif()
endmacro()
