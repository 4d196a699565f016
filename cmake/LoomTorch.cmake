# SPDX-License-Identifier: BSD-3-Clause
# Finds the torch to build with: what Torch_DIR, Torch_ROOT or CMAKE_PREFIX_PATH say, or that of the
# active Python environment. Gives the
# interface target loom_torch with what loom's own files need beside Loom::torch.
include_guard(GLOBAL)
include(LoomTorchPackage)

# Under scikit-build-core site-packages is on CMAKE_PREFIX_PATH already.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
execute_process(
  COMMAND
    ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE torch_of_python
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
)
loom_find_torch(HINTS ${torch_of_python})
if(LOOM_TORCH_PROBLEM)
  message(FATAL_ERROR "${LOOM_TORCH_PROBLEM}")
endif()
message(STATUS "Building with torch ${LOOM_TORCH_VERSION} in ${LOOM_TORCH_PREFIX}")
if(torch_of_python AND NOT LOOM_TORCH_PREFIX STREQUAL torch_of_python)
  message(WARNING "${Python_EXECUTABLE} imports another torch, the one in ${torch_of_python}")
endif()

add_library(loom_torch INTERFACE)
target_link_libraries(loom_torch INTERFACE Loom::torch)
# The signature of DispatchStub's lookup depends on which CPU kernels libtorch was built with.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(
    loom_torch
    INTERFACE HAVE_AVX2_CPU_DEFINITION HAVE_AVX512_CPU_DEFINITION
  )
endif()
target_compile_definitions(loom_torch INTERFACE USE_KINETO)
