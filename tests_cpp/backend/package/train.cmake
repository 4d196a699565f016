# SPDX-License-Identifier: BSD-3-Clause
# Installs the package into a folder of its own, builds examples/cpp/train against it and runs it.
# Arguments: SOURCE_DIR of the project, LAUNCHER (of compilers, or empty), and
# those of install.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/install.cmake)
execute_process(
  COMMAND
    ${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/cpp/train -B ${WORK_DIR}/build
    -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
  COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK_DIR}/build/train COMMAND_ERROR_IS_FATAL ANY)
