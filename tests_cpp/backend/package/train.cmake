# SPDX-License-Identifier: BSD-3-Clause
# Installs the package into a folder of its own, builds examples/cpp/train against it and runs it.
# Arguments: SOURCE_DIR of the project, LAUNCHER (of compilers, or empty), MINOR (the torch that it was built for), and
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

# In a process with another minor version of torch, here one that says so, the program ends with an error that names both.
load_cache(${WORK_DIR}/build READ_WITH_PREFIX "" CMAKE_CXX_COMPILER)
file(
  WRITE ${WORK_DIR}/other_version.cpp
  "extern \"C\" unsigned long aoti_torch_abi_version() { return 0x0263070000000000ul; }\n"
)
execute_process(
  COMMAND
    ${CMAKE_CXX_COMPILER} -shared -fPIC ${WORK_DIR}/other_version.cpp -o
    ${WORK_DIR}/libother_version.so
  COMMAND_ERROR_IS_FATAL ANY
)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env LD_PRELOAD=${WORK_DIR}/libother_version.so ${WORK_DIR}/build/train
  RESULT_VARIABLE result
  ERROR_VARIABLE errors
)
string(FIND "${errors}" "expected torch ${MINOR}.*, which it was built for, got torch 2.99.7" place)
if(result EQUAL 0 OR place EQUAL -1)
  message(FATAL_ERROR "expected an error that names torch ${MINOR} and 2.99.7, got: ${errors}")
endif()
