# SPDX-License-Identifier: BSD-3-Clause
# Installs the package into a folder of its own, builds examples/cpp/custom_ops against it, runs its
# program and, where there is a Python package, its tests.
# Arguments: SOURCE_DIR of the project, LAUNCHER (of compilers, or empty), PYTHON (the interpreter),
# PYTHON_PACKAGES (where torch_loom is in the build tree, or empty), and those of install.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/install.cmake)
set(example ${SOURCE_DIR}/examples/cpp/custom_ops)
execute_process(
  COMMAND
    ${CMAKE_COMMAND} -S ${example} -B ${WORK_DIR}/build -DCMAKE_PREFIX_PATH=${PREFIX}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
  COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK_DIR}/build/check COMMAND_ERROR_IS_FATAL ANY)
if(PYTHON_PACKAGES)
  foreach(memory IN ITEMS unified isolated)
    execute_process(
      COMMAND
        ${CMAKE_COMMAND} -E env PYTHONPATH=${PYTHON_PACKAGES} LOOM_MEMORY=${memory}
        CUSTOM_OPS_LIBRARY=${WORK_DIR}/build/libcustom_ops.so LOOM_THREADS=2 GOMP_SPINCOUNT=1000
        ${PYTHON} -m pytest -q -p no:cacheprovider ${example}
      WORKING_DIRECTORY ${SOURCE_DIR}
      COMMAND_ERROR_IS_FATAL ANY
    )
  endforeach()
endif()
