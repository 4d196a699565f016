# SPDX-License-Identifier: BSD-3-Clause
# loom_generate_structured(target table): adds the sources that codegen/structured.py makes from the
# table and from torch's list of operators. They are made while configuring, which the build repeats
# when the table or the script changes, so that the list of files is known.
include_guard(GLOBAL)

set(LOOM_STRUCTURED_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/codegen/structured.py)

function(loom_generate_structured target table)
  execute_process(
    COMMAND
      ${Python_EXECUTABLE} ${LOOM_STRUCTURED_SCRIPT} ${table} ${CMAKE_CURRENT_BINARY_DIR}/generated
      ${LOOM_TORCH_VERSION}
    OUTPUT_VARIABLE sources
    ERROR_VARIABLE problem
    RESULT_VARIABLE status
    OUTPUT_STRIP_TRAILING_WHITESPACE
  )
  if(NOT status EQUAL 0)
    message(
      FATAL_ERROR
      "${LOOM_STRUCTURED_SCRIPT} failed. It needs torch and pyyaml in the active Python environment "
      "(pip install pyyaml).\n${problem}"
    )
  endif()
  string(REPLACE "\n" ";" sources "${sources}")
  target_sources(${target} PRIVATE ${sources})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table} ${LOOM_STRUCTURED_SCRIPT})
endfunction()
