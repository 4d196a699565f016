# SPDX-License-Identifier: BSD-3-Clause
# What a wheel carries (component python) and what a C++ program links (component dev). Both hold
# the library, its public headers and the CMake package, so that find_package(Loom) works with an
# installed wheel as with an installed tree.
include_guard(GLOBAL)
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

if(SKBUILD)
  # Relative to the package's folder, site-packages/torch_loom. A wheel has no symbolic links.
  set(loom_component python)
  set(loom_libdir lib)
  set(loom_includedir include)
  # In a wheel of several versions of torch (tools/merge_wheels.py) it lies a folder deeper.
  set(loom_rpath "$ORIGIN" "$ORIGIN/../../torch/lib" "$ORIGIN/../../../torch/lib")
  set_property(TARGET loom PROPERTY VERSION)
  set_property(TARGET loom PROPERTY SOVERSION)
else()
  set(loom_component dev)
  set(loom_libdir ${CMAKE_INSTALL_LIBDIR})
  set(loom_includedir ${CMAKE_INSTALL_INCLUDEDIR})
  set(loom_rpath "$ORIGIN" "${LOOM_TORCH_PREFIX}/lib")
  set(LOOM_TORCH_HINT "${LOOM_TORCH_PREFIX}")
endif()
set(loom_cmakedir ${loom_libdir}/cmake/Loom)

set_target_properties(loom PROPERTIES INSTALL_RPATH "${loom_rpath}")
target_compile_features(loom PUBLIC cxx_std_20)
target_sources(
  loom
  PUBLIC
    FILE_SET HEADERS
      BASE_DIRS ${PROJECT_SOURCE_DIR}/cpp
      FILES
        ${PROJECT_SOURCE_DIR}/cpp/loom/loom.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/backend/device_state.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/backend/event.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/backend/library.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/backend/memory_stats.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/backend/seed.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/backend/stream.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/base/export.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/device/device_count.h
        ${PROJECT_SOURCE_DIR}/cpp/loom/ops/custom_kernel.h
)

install(
  TARGETS loom
  EXPORT LoomTargets
  LIBRARY DESTINATION ${loom_libdir} COMPONENT ${loom_component}
  FILE_SET HEADERS DESTINATION ${loom_includedir} COMPONENT ${loom_component}
)
# Beside torch's headers of the same kind, for graphs that are compiled to C++.
cmake_path(GET LOOM_AOTI_SHIM_HEADER_NAME PARENT_PATH loom_shim_dir)
install(
  FILES ${LOOM_AOTI_SHIM_HEADER}
  DESTINATION ${loom_includedir}/${loom_shim_dir}
  COMPONENT ${loom_component}
)
install(
  EXPORT LoomTargets
  NAMESPACE Loom::
  DESTINATION ${loom_cmakedir}
  COMPONENT ${loom_component}
)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/LoomConfig.cmake.in
  ${PROJECT_BINARY_DIR}/LoomConfig.cmake
  INSTALL_DESTINATION ${loom_cmakedir}
  NO_SET_AND_CHECK_MACRO
)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/LoomConfigVersion.cmake
  COMPATIBILITY SameMinorVersion
)
install(
  FILES
    ${PROJECT_BINARY_DIR}/LoomConfig.cmake
    ${PROJECT_BINARY_DIR}/LoomConfigVersion.cmake
    ${CMAKE_CURRENT_LIST_DIR}/LoomTorchPackage.cmake
  DESTINATION ${loom_cmakedir}
  COMPONENT ${loom_component}
)
