# SPDX-License-Identifier: BSD-3-Clause
# find_package(Loom) beside a torch that is too old must fail and say which torch it needs.
# Arguments: SOURCE_DIR and BINARY_DIR of the project, WORK_DIR.
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR} --component dev --prefix ${WORK_DIR}/prefix
  COMMAND_ERROR_IS_FATAL ANY
)
set(package ${SOURCE_DIR}/tests_cpp/backend/package)
execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${package}/consumer -B ${WORK_DIR}/build
          -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DTorch_DIR=${package}/old_torch
  RESULT_VARIABLE result
  ERROR_VARIABLE errors
)
string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
if(result EQUAL 0 OR NOT errors MATCHES "needs torch 2\\.13, found 2\\.12\\.0")
  message(FATAL_ERROR "expected a refusal that names torch 2.13 and 2.12.0, got: ${errors}")
endif()
