# SPDX-License-Identifier: BSD-3-Clause
# loom_find_torch([MINOR version] [HINTS folder...]): finds the package of the torch that loom is
# built, or used, with, and makes the target Loom::torch: what includes ATen's headers links it. The
# build calls it without a minor version, and the installed package with the one it was built for.
#
# find_package(Torch) is not asked. The torch that pip installs on Linux has CUDA in it, and its own
# configuration fails without CUDA's toolkit; loom needs nothing of CUDA, and links none of it. As
# find_package(Torch) does, this follows Torch_DIR, Torch_ROOT and CMAKE_PREFIX_PATH; it keeps
# Torch_DIR, so that a project that calls both is given one torch.
#
# Sets, for the caller:
#   LOOM_TORCH_PREFIX   the folder of the package, which has include and lib
#   LOOM_TORCH_VERSION  its minor version, as 2.13
#   LOOM_TORCH_PROBLEM  why that torch will not do, or nothing
include_guard()

# The oldest torch to build with. Its C++ interface is not stable: a library works with the minor
# version that it was built for, and no other.
set(LOOM_OLDEST_TORCH 2.13)

function(loom_find_torch)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "MINOR" "HINTS")
  set(root "")
  set(problem "")
  set(minor "")
  if(arg_MINOR)
    set(needed "${arg_MINOR}, which it was built for")
    set(requirement "torch==${arg_MINOR}.*")
  else()
    set(needed "${LOOM_OLDEST_TORCH} or newer")
    set(requirement "torch>=${LOOM_OLDEST_TORCH}")
  endif()

  # An isolated build's environment is gone when its build tree is used again.
  if(NOT EXISTS "${Torch_DIR}/TorchConfig.cmake")
    unset(Torch_DIR CACHE)
  endif()
  cmake_path(CONVERT "$ENV{CMAKE_PREFIX_PATH}" TO_CMAKE_PATH_LIST prefixes)
  # A prefix may be torch's own folder, the folder of Python packages that it lies in, or what
  # torch.utils.cmake_prefix_path says.
  find_path(
    Torch_DIR
    NAMES TorchConfig.cmake
    HINTS ${Torch_ROOT} $ENV{Torch_ROOT} ${CMAKE_PREFIX_PATH} ${prefixes} ${arg_HINTS}
    PATH_SUFFIXES share/cmake/Torch torch/share/cmake/Torch Torch
    DOC "The folder of TorchConfig.cmake in torch's package"
    NO_DEFAULT_PATH
    NO_CMAKE_FIND_ROOT_PATH
  )

  if(Torch_DIR)
    get_filename_component(root "${Torch_DIR}/../../.." ABSOLUTE)
    loom_torch_version_of(${root} found)
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${found}")
    if((arg_MINOR AND NOT minor STREQUAL arg_MINOR) OR minor VERSION_LESS LOOM_OLDEST_TORCH)
      set(problem "found ${found} in ${root}")
    endif()
  else()
    set(problem "found none")
  endif()
  if(problem)
    unset(Torch_DIR CACHE) # the next run looks again
    string(PREPEND problem "torch-loom needs torch ${needed}, ")
    string(
      APPEND problem
      ". Install one (pip install '${requirement}'), or point Torch_DIR or CMAKE_PREFIX_PATH to one."
    )
  elseif(NOT TARGET Loom::torch)
    loom_add_torch_targets(${root})
  endif()
  set(LOOM_TORCH_PREFIX "${root}" PARENT_SCOPE)
  set(LOOM_TORCH_VERSION "${minor}" PARENT_SCOPE)
  set(LOOM_TORCH_PROBLEM "${problem}" PARENT_SCOPE)
endfunction()

# Sets `result` to the version that torch's headers say.
function(loom_torch_version_of prefix result)
  set(version "")
  # The second place is that of older ones.
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${prefix}/include/${header})
      file(
        STRINGS ${prefix}/include/${header}
        lines
        REGEX "TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]"
      )
      list(TRANSFORM lines REPLACE ".* ([0-9]+).*" "\\1" OUTPUT_VARIABLE numbers)
      if(numbers)
        list(JOIN numbers "." version)
        break()
      endif()
    endif()
  endforeach()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

function(loom_add_torch_targets prefix)
  foreach(name IN ITEMS c10 torch_cpu)
    add_library(Loom::${name} SHARED IMPORTED)
    set_target_properties(
      Loom::${name}
      PROPERTIES
        IMPORTED_LOCATION ${prefix}/lib/lib${name}${CMAKE_SHARED_LIBRARY_SUFFIX}
        INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include;${prefix}/include/torch/csrc/api/include"
    )
  endforeach()
  # Not libtorch itself: it has no functions, but asks the loader for those of CUDA.
  add_library(Loom::torch INTERFACE IMPORTED)
  target_link_libraries(Loom::torch INTERFACE Loom::torch_cpu Loom::c10)
  target_compile_features(Loom::torch INTERFACE cxx_std_20)
  # What libtorch was built with; some classes of its headers have other members without.
  target_compile_definitions(
    Loom::torch
    INTERFACE _GLIBCXX_USE_CXX11_ABI=1 USE_C10D_GLOO USE_DISTRIBUTED USE_RPC USE_TENSORPIPE
  )
  # With CUDA in torch, libtorch_cpu itself needs libraries of CUDA when it is loaded, and a program
  # may be linked where they are not. The same for the others.
  foreach(accelerator IN ITEMS cuda hip xpu)
    if(EXISTS ${prefix}/lib/libtorch_${accelerator}${CMAKE_SHARED_LIBRARY_SUFFIX})
      target_link_options(Loom::torch INTERFACE LINKER:--allow-shlib-undefined)
      break()
    endif()
  endforeach()
endfunction()
