# SPDX-License-Identifier: BSD-3-Clause
# Compiler settings shared by all targets, as the interface target loom_flags.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(LOOM_CCACHE ccache)
  if(LOOM_CCACHE)
    # It is told to trust what precompiled headers were made of; it looks at these files all the same.
    set(
      CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND}
      -E
      env
      CCACHE_SLOPPINESS=pch_defines,time_macros
      ${LOOM_CCACHE}
    )
  endif()
endif()

find_package(Threads REQUIRED)

# A compiler that is newer than those of this project's tests may warn of more: that must not end a user's build.
option(LOOM_WERROR "Take compiler warnings for errors" ${LOOM_BUILD_TESTS})

add_library(loom_flags INTERFACE)
target_compile_options(
  loom_flags
  INTERFACE
    -Wall
    -Wextra
    $<$<BOOL:${LOOM_WERROR}>:-Werror>
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
)
target_compile_definitions(loom_flags INTERFACE $<$<BOOL:${LOOM_CHECKS}>:LOOM_CHECKS=1>)
target_compile_definitions(loom_flags INTERFACE $<$<BOOL:${LOOM_LOCK_CHECKS}>:LOOM_LOCK_CHECKS=1>)
if(LOOM_SANITIZER)
  target_compile_options(
    loom_flags
    INTERFACE -fsanitize=${LOOM_SANITIZER} -fno-omit-frame-pointer -g1 -fno-sanitize-recover=all
  )
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # What the sanitizers put between statements hides from GCC what was initialised.
    target_compile_options(loom_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
  if(LOOM_SANITIZER MATCHES "undefined")
    # libtorch hides the type information of classes that its headers show.
    target_compile_options(loom_flags INTERFACE -fno-sanitize=vptr)
  endif()
  target_link_options(loom_flags INTERFACE -fsanitize=${LOOM_SANITIZER})
endif()
target_link_libraries(loom_flags INTERFACE Threads::Threads)

# Code without arithmetic, whose calls take longer than it does: GCC spends a quarter of its time there in passes that make
# no call faster.
add_library(loom_glue_flags INTERFACE)
target_compile_options(
  loom_glue_flags
  INTERFACE $<$<CONFIG:Release>:-O1 -finline-small-functions -fpartial-inlining>
)
target_link_libraries(loom_glue_flags INTERFACE loom_flags)

# A library that is linked with an older glibc's names runs on systems with that one, too.
set(
  LOOM_GLIBC_STUBS
  ""
  CACHE PATH
  "Stubs of an older glibc's libraries, made by tools/glibc_stubs.py, to link with"
)
# loom_link_old_glibc(target): links a shared library with LOOM_GLIBC_STUBS, if there are any.
function(loom_link_old_glibc target)
  if(LOOM_GLIBC_STUBS)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cpp/loom/base/old_glibc.cpp)
    target_link_options(${target} PRIVATE -L${LOOM_GLIBC_STUBS})
    # Libraries of their own, before glibc 2.34.
    target_link_libraries(${target} PRIVATE pthread dl)
  endif()
endfunction()

# loom_batch(target name file...): sources of the current folder that are compiled as one file, because each that includes
# torch's headers spends three seconds on them. They share their anonymous namespaces: where two define the same name, move
# one to another batch. LOOM_BATCHES=OFF compiles each by itself.
function(loom_batch target name)
  target_sources(${target} PRIVATE ${ARGN})
  if(LOOM_BATCHES)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    # Types in anonymous namespaces seem to come from headers there.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${name})
  endif()
endfunction()
