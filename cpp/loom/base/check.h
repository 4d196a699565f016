// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Errors of the torch-free core. A broken precondition throws loom::Error; an impossible state
// aborts. Expected failures (no memory left, not ready yet) are return values, never exceptions.

#include "loom/base/export.h"

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace loom {

/// What the core throws. The torch skin translates it where PyTorch would raise another type.
class LOOM_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

/// Throws: std::bad_alloc. (Streams would keep it to themselves, and cut the text off.)
template <class... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::ostringstream text;
  text.exceptions(std::ios_base::badbit);
  (text << ... << parts);
  return text.str();
}

[[noreturn]] LOOM_API void throw_error(const std::string& message);
[[noreturn]] LOOM_API void assert_failed(const char* file, int line, const char* condition,
                                         std::string_view message) noexcept;

}  // namespace detail
}  // namespace loom

/// Throws loom::Error with the concatenated message parts unless `condition` holds.
#define LOOM_CHECK(condition, ...)                                      \
  do {                                                                  \
    if (!(condition)) [[unlikely]] {                                    \
      ::loom::detail::throw_error(::loom::detail::concat(__VA_ARGS__)); \
    }                                                                   \
  } while (false)

/// Ends the process with file, line and message: for states that only a bug of loom can cause.
/// Safe in destructors and noexcept functions.
#define LOOM_ASSERT(condition, message)                                         \
  do {                                                                          \
    if (!(condition)) [[unlikely]] {                                            \
      ::loom::detail::assert_failed(__FILE__, __LINE__, #condition, (message)); \
    }                                                                           \
  } while (false)
