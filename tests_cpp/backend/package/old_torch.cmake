# SPDX-License-Identifier: BSD-3-Clause
# find_package(Loom) with a torch that is too old must fail and say which torch it needs.
# Arguments: SOURCE_DIR of the project, MINOR (the torch that it was built for) and those of
# install.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/install.cmake)
set(package ${SOURCE_DIR}/tests_cpp/backend/package)
file(REMOVE_RECURSE ${WORK_DIR}/build)
execute_process(
  COMMAND
    ${CMAKE_COMMAND} -S ${package}/consumer -B ${WORK_DIR}/build -DCMAKE_PREFIX_PATH=${PREFIX}
    -DTorch_DIR=${package}/old_torch/share/cmake/Torch
  RESULT_VARIABLE result
  ERROR_VARIABLE errors
)
string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
string(FIND "${errors}" "needs torch ${MINOR}, which it was built for, found 2.12.0" place)
if(result EQUAL 0 OR place EQUAL -1)
  message(FATAL_ERROR "expected a refusal that names torch ${MINOR} and 2.12.0, got: ${errors}")
endif()
