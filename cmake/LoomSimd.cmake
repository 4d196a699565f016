# SPDX-License-Identifier: BSD-3-Clause
# Kernels that are compiled once for each instruction set (cpp/loom/simd/versions.h).
include_guard(GLOBAL)

# Sums and products are rounded one by one, whatever the instruction set, unless a file says
# otherwise; nobody looks at errno or at the floating-point flags.
set(LOOM_SIMD_ARITHMETIC -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
set(LOOM_SIMD_SETS scalar)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND LOOM_SIMD_SETS neon)
  # What the compiler takes for granted there is NEON; without it vectors of its extension are
  # numbers one by one.
  set(LOOM_SIMD_FLAGS_scalar -march=armv8-a+nosimd)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND LOOM_SIMD_SETS avx2 avx512 avx512_bf16)
  set(LOOM_SIMD_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
  set(
    LOOM_SIMD_FLAGS_avx512
    ${LOOM_SIMD_FLAGS_avx2}
    -mavx512f
    -mavx512bw
    -mavx512vl
    -mavx512dq
    # GCC 12 takes the undefined lanes in its own headers for a mistake.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
    -mprefer-vector-width=512
  )
  set(
    LOOM_SIMD_FLAGS_avx512_bf16
    ${LOOM_SIMD_FLAGS_avx512}
    -mavx512bf16
    -mavx512vbmi
    -mavx512vnni
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>
  )
endif()

# loom_simd_<set> for each instruction set: what links one has the kernels for it.
function(loom_add_simd_libraries)
  foreach(set IN LISTS LOOM_SIMD_SETS)
    add_library(loom_simd_${set} OBJECT)
    target_include_directories(loom_simd_${set} PRIVATE ${PROJECT_SOURCE_DIR}/cpp)
    target_compile_definitions(loom_simd_${set} PRIVATE LOOM_SIMD=${set})
    target_compile_options(
      loom_simd_${set}
      PRIVATE ${LOOM_SIMD_FLAGS_${set}} ${LOOM_SIMD_ARITHMETIC}
    )
    target_link_libraries(loom_simd_${set} PRIVATE loom_flags)
  endforeach()
endfunction()

# loom_simd_sources([ONLY set] [CONTRACT] file...): files of the current folder, compiled for
# scalar, avx2 and avx512, or for one set only; with CONTRACT a sum of a product may be rounded
# once, where the bits may differ between sets.
function(loom_simd_sources)
  cmake_parse_arguments(PARSE_ARGV 0 arg "CONTRACT" "ONLY" "")
  set(sets ${LOOM_SIMD_SETS})
  list(REMOVE_ITEM sets avx512_bf16)
  if(arg_ONLY)
    set(sets ${arg_ONLY})
  endif()
  foreach(set IN LISTS sets)
    if(NOT TARGET loom_simd_${set})
      continue()
    endif()
    target_sources(loom_simd_${set} PRIVATE ${arg_UNPARSED_ARGUMENTS})
    if(arg_CONTRACT)
      set_source_files_properties(
        ${arg_UNPARSED_ARGUMENTS}
        TARGET_DIRECTORY loom_simd_${set}
        PROPERTIES COMPILE_OPTIONS -ffp-contract=fast
      )
    endif()
  endforeach()
endfunction()
