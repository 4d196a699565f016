# SPDX-License-Identifier: BSD-3-Clause
# Sources that are made of torch's list of operators, while configuring: so the list of files is known, and the build
# configures again when a script or table changes.
# loom_generate_structured(target table): the registrations that codegen/structured.py makes from the table.
# loom_generate_aoti_shims(target): the entry points of codegen/aoti_shims.py; gives LOOM_AOTI_SHIM_HEADER, and
# LOOM_AOTI_SHIM_HEADER_NAME as which generated code includes it.
include_guard(GLOBAL)

set(LOOM_CODEGEN_DIR ${CMAKE_CURRENT_LIST_DIR}/codegen)

# Python that runs a script, for which torchgen lies beside torch: an isolated build hides both from Python.
string(
  CONCAT LOOM_RUN_SCRIPT
  "import runpy, sys; packages, *sys.argv = sys.argv[1:]; sys.path.append(packages); "
  "runpy.run_path(sys.argv[0], run_name='__main__')"
)

function(loom_generate target script)
  cmake_path(GET LOOM_TORCH_PREFIX PARENT_PATH packages)
  execute_process(
    COMMAND
      ${Python_EXECUTABLE} -c "${LOOM_RUN_SCRIPT}" ${packages} ${LOOM_CODEGEN_DIR}/${script} ${ARGN}
    OUTPUT_VARIABLE sources
    ERROR_VARIABLE problem
    RESULT_VARIABLE status
    OUTPUT_STRIP_TRAILING_WHITESPACE
  )
  if(NOT status EQUAL 0)
    message(
      FATAL_ERROR
      "${LOOM_CODEGEN_DIR}/${script} failed. It needs pyyaml in the active Python environment (pip install pyyaml), "
      "and torchgen beside ${LOOM_TORCH_PREFIX}.\n${problem}"
    )
  endif()
  if(NOT problem STREQUAL "")
    message(WARNING "${LOOM_CODEGEN_DIR}/${script}: ${problem}")
  endif()
  string(REPLACE "\n" ";" sources "${sources}")
  target_sources(${target} PRIVATE ${sources})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${LOOM_CODEGEN_DIR}/${script})
endfunction()

function(loom_generate_structured target table)
  loom_generate(
    ${target}
    structured.py
    ${table}
    ${CMAKE_CURRENT_BINARY_DIR}/generated
    ${LOOM_TORCH_VERSION}
  )
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
endfunction()

function(loom_generate_aoti_shims target)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/generated/aoti)
  loom_generate(${target} aoti_shims.py ${folder})
  target_include_directories(${target} PRIVATE ${folder}/include)
  set(name torch/csrc/inductor/aoti_torch/generated/c_shim_loom.h)
  set(LOOM_AOTI_SHIM_HEADER_NAME ${name} CACHE INTERNAL "")
  set(LOOM_AOTI_SHIM_HEADER ${folder}/include/${name} CACHE INTERNAL "")
endfunction()
