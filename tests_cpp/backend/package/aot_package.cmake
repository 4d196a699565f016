# SPDX-License-Identifier: BSD-3-Clause
# Installs the package into a folder of its own, builds examples/cpp/package against it and, where
# there is a Python package, compiles a model with it that the program runs on two devices.
# Arguments: SOURCE_DIR of the project, LAUNCHER (of compilers, or empty), PYTHON (the interpreter),
# PYTHON_PACKAGES (where torch_loom is in the build tree, or empty), and those of install.cmake.
include(${CMAKE_CURRENT_LIST_DIR}/install.cmake)
set(example ${SOURCE_DIR}/examples/cpp/package)
execute_process(
  COMMAND
    ${CMAKE_COMMAND} -S ${example} -B ${WORK_DIR}/build -DCMAKE_PREFIX_PATH=${PREFIX}
    -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
  COMMAND_ERROR_IS_FATAL ANY
)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK_DIR}/build COMMAND_ERROR_IS_FATAL ANY)
if(PYTHON_PACKAGES)
  set(model ${WORK_DIR}/model.pt2)
  execute_process(
    COMMAND
      ${CMAKE_COMMAND} -E env PYTHONPATH=${PYTHON_PACKAGES} LOOM_THREADS=2
      TORCHINDUCTOR_CACHE_DIR=${WORK_DIR}/inductor ${PYTHON} ${example}/export.py ${model}
    COMMAND_ERROR_IS_FATAL ANY
  )
  foreach(memory IN ITEMS unified isolated)
    foreach(device IN ITEMS 0 1)
      execute_process(
        COMMAND
          ${CMAKE_COMMAND} -E env LOOM_DEVICES=2 LOOM_THREADS=2 LOOM_MEMORY=${memory}
          ${WORK_DIR}/build/run_package ${model} ${device}
        COMMAND_ERROR_IS_FATAL ANY
      )
    endforeach()
  endforeach()
endif()
