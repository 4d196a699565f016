# SPDX-License-Identifier: BSD-3-Clause
# GTest, and loom_add_test(NAME module SOURCES ... LIBRARIES ...): one executable per module whose
# cases are ctest tests with the module's name as label.
include_guard(GLOBAL)
include(GoogleTest)

find_package(GTest QUIET)
if(NOT GTest_FOUND)
  message(
    FATAL_ERROR
    "GTest is missing: install Debian's libgtest-dev and libgmock-dev, or configure "
    "with -DLOOM_BUILD_TESTS=OFF"
  )
endif()

function(loom_add_test)
  cmake_parse_arguments(arg "" "NAME" "SOURCES;LIBRARIES" ${ARGN})
  set(target test_${arg_NAME})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE loom_flags ${arg_LIBRARIES} GTest::gtest GTest::gmock)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests_cpp)
  gtest_discover_tests(${target} PROPERTIES LABELS ${arg_NAME} TIMEOUT 300 DISCOVERY_TIMEOUT 60)
endfunction()
