// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The import tables of the libraries that the process has loaded: which function each of them calls
// under a name that another library exports. A table is an array of addresses (the GOT of an ELF
// file) that the dynamic loader has filled; a redirected entry calls a function of ours instead.
//
// Works with ELF files of 64 bits for x86-64 and AArch64. Not seen: calls inside the library that
// defines the function, where it was linked with -Bsymbolic, and libraries that are loaded later.
// Thread: any, one at a time; other threads may call the functions meanwhile, and reach the one or
// the other. The caller keeps the new functions loaded for ever.

#include "loom/base/export.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace loom {

/// A function that libraries import, and the one that they are to call.
struct ImportRedirect {
  std::string_view symbol;  ///< the name in symbol tables, mangled
  void* target;
};

struct RedirectedImports {
  std::size_t entries =
      0;                ///< entries that call the new functions now, those of earlier calls, too
  std::string problem;  ///< empty, or why an entry could not be written; earlier ones are
};

/// True on processors whose import tables the functions below understand.
[[nodiscard]] LOOM_API bool can_redirect_imports() noexcept;

/// How many libraries the process has loaded since it began. Equal numbers: none was added.
[[nodiscard]] LOOM_API std::uint64_t loaded_libraries() noexcept;

/// Redirects the imports of all loaded libraries but those whose file names begin with a prefix.
/// Calling it again redirects the imports of libraries that were loaded in between.
/// Requires: can_redirect_imports().
[[nodiscard]] LOOM_API RedirectedImports redirect_imports(
    std::span<const ImportRedirect> redirects, std::span<const std::string_view> skipped_prefixes);

}  // namespace loom
