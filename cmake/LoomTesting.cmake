# SPDX-License-Identifier: BSD-3-Clause
# GTest, and loom_add_test(NAME module SOURCES ... LIBRARIES ... PRECOMPILE header...): one executable per module whose
# cases are ctest tests with the module's name as label. GTest's headers are precompiled in each.
include_guard(GLOBAL)
include(GoogleTest)

if(CMAKE_CROSSCOMPILING)
  # Debian has GTest's sources, but libraries for the host only.
  set(LOOM_GTEST_SOURCE /usr/src/googletest CACHE PATH "GTest's sources, for another processor")
  if(EXISTS ${LOOM_GTEST_SOURCE}/CMakeLists.txt)
    set(INSTALL_GTEST OFF)
    add_subdirectory(${LOOM_GTEST_SOURCE} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
    set(GTest_FOUND TRUE)
  endif()
else()
  find_package(GTest QUIET)
endif()
if(NOT GTest_FOUND)
  message(
    FATAL_ERROR
    "GTest is missing: install Debian's libgtest-dev and libgmock-dev (googletest to cross-compile), "
    "or configure with -DLOOM_BUILD_TESTS=OFF"
  )
endif()

function(loom_add_test)
  cmake_parse_arguments(arg "" "NAME" "SOURCES;LIBRARIES;PRECOMPILE" ${ARGN})
  set(target test_${arg_NAME})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE loom_flags ${arg_LIBRARIES} GTest::gtest GTest::gmock)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests_cpp)
  # Half of the time that a file of tests takes to compile went into fast code for GTest's macros.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(LOOM_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} PRIVATE <gmock/gmock.h> <gtest/gtest.h> ${arg_PRECOMPILE})
  endif()
  if(CMAKE_CROSSCOMPILING_EMULATOR)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests_cpp/support/emulated.cpp)
    list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
    target_compile_definitions(${target} PRIVATE "LOOM_TEST_EMULATOR=\"${emulator}\"")
  endif()
  gtest_discover_tests(${target} PROPERTIES LABELS ${arg_NAME} TIMEOUT 300 DISCOVERY_TIMEOUT 60)
endfunction()
