# SPDX-License-Identifier: BSD-3-Clause
# The project, and what uses its package, can be built with a torch that has CUDA in it where CUDA's
# toolkit is not: torch's own configuration, which fails there, is not asked, and nothing of CUDA is
# linked. Arguments: SOURCE_DIR of the project, PYTHON (the interpreter), PYTHON_PACKAGES (empty
# where there is no Python module), TORCH (a torch's folder) and those of install.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/install.cmake)

# TORCH with CUDA in it, as far as CMake can see.
set(torch ${WORK_DIR}/torch_with_cuda)
file(REMOVE_RECURSE ${torch} ${WORK_DIR}/loom ${WORK_DIR}/consumer)
file(MAKE_DIRECTORY ${torch}/lib ${torch}/share/cmake/Torch)
file(CREATE_LINK ${TORCH}/include ${torch}/include SYMBOLIC)
file(GLOB libraries ${TORCH}/lib/*)
foreach(library IN LISTS libraries)
  cmake_path(GET library FILENAME name)
  file(CREATE_LINK ${library} ${torch}/lib/${name} SYMBOLIC)
endforeach()
if(NOT EXISTS ${torch}/lib/libtorch_cuda.so)
  file(TOUCH ${torch}/lib/libtorch_cuda.so)
endif()
file(
  WRITE ${torch}/share/cmake/Torch/TorchConfig.cmake
  "message(FATAL_ERROR \"Your installed Caffe2 version uses CUDA but I cannot find it.\")\n"
)

# Ninja writes all commands to one file.
function(configure source build)
  execute_process(
    COMMAND
      ${CMAKE_COMMAND} -G Ninja -S ${source} -B ${build} -DTorch_DIR=${torch}/share/cmake/Torch
      ${ARGN}
    COMMAND_ERROR_IS_FATAL ANY
  )
  file(READ ${build}/build.ninja commands)
  string(FIND "${commands}" "${torch}/lib/libtorch_cpu.so" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "${build} does not link the torch that it was given")
  endif()
  # A program is linked though libraries of CUDA that libtorch_cpu needs are missing.
  if(NOT commands MATCHES "--allow-shlib-undefined")
    message(FATAL_ERROR "${build} needs CUDA's libraries to link")
  endif()
  # libtorch needs libtorch_cuda, and has no functions.
  if(commands MATCHES "lib[a-z0-9_]*(cuda|nvrtc)[a-z0-9_]*\\.so|lib/libtorch\\.so")
    message(FATAL_ERROR "${build} links ${CMAKE_MATCH_0}")
  endif()
endfunction()

if(PYTHON_PACKAGES)
  set(python ON)
else()
  set(python OFF)
endif()
configure(
  ${SOURCE_DIR} ${WORK_DIR}/loom -DPython_EXECUTABLE=${PYTHON} -DLOOM_BUILD_TESTS=OFF
  -DLOOM_BUILD_PYTHON=${python}
)
configure(${SOURCE_DIR}/examples/cpp/train ${WORK_DIR}/consumer -DCMAKE_PREFIX_PATH=${PREFIX})
