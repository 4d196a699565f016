# SPDX-License-Identifier: BSD-3-Clause
# Finds the torch of the active Python environment and checks its version. Gives the interface
# target loom_torch with what a file that includes ATen needs to compile and link.
include_guard(GLOBAL)

set(LOOM_TORCH_VERSION 2.13)

# Under scikit-build-core site-packages is on CMAKE_PREFIX_PATH already.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
if(NOT Torch_DIR AND NOT Torch_ROOT)
  execute_process(
    COMMAND
      ${Python_EXECUTABLE} -c
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE LOOM_TORCH_ROOT
    OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET
  )
  if(LOOM_TORCH_ROOT)
    list(PREPEND CMAKE_PREFIX_PATH ${LOOM_TORCH_ROOT})
  endif()
endif()
find_package(Torch REQUIRED)
if(NOT Torch_VERSION MATCHES "^2\\.13\\.")
  message(
    FATAL_ERROR
    "torch-loom needs torch ${LOOM_TORCH_VERSION}, found ${Torch_VERSION} at ${TORCH_INSTALL_PREFIX}. "
    "Install it into the active Python environment: pip install torch==2.13.0"
  )
endif()

add_library(loom_torch INTERFACE)
target_link_libraries(loom_torch INTERFACE torch)
# The signature of DispatchStub's lookup depends on which CPU kernels libtorch was built with.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(
    loom_torch
    INTERFACE HAVE_AVX2_CPU_DEFINITION HAVE_AVX512_CPU_DEFINITION
  )
endif()
target_compile_definitions(loom_torch INTERFACE USE_KINETO)
