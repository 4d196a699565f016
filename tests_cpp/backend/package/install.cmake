# SPDX-License-Identifier: BSD-3-Clause
# Sets PREFIX to a fresh installation of the build below WORK_DIR. A build for a wheel is installed
# as site-packages has it, with torch beside it.
# Arguments: BINARY_DIR of the project, WORK_DIR, WHEEL and, for wheels, TORCH.
file(REMOVE_RECURSE ${WORK_DIR}/prefix)
if(WHEEL)
  set(PREFIX ${WORK_DIR}/prefix/torch_loom)
  file(MAKE_DIRECTORY ${PREFIX})
  file(CREATE_LINK ${TORCH} ${WORK_DIR}/prefix/torch SYMBOLIC)
  set(component python)
else()
  set(PREFIX ${WORK_DIR}/prefix)
  set(component dev)
endif()
execute_process(
  COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR} --component ${component} --prefix ${PREFIX}
  COMMAND_ERROR_IS_FATAL ANY
)
