// SPDX-License-Identifier: BSD-3-Clause
#include "loom/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace loom::detail {

void throw_error(const std::string& message) { throw Error(message); }

void assert_failed(const char* file, int line, const char* condition,
                   std::string_view message) noexcept {
  std::fprintf(stderr, "loom: internal error at %s:%d: %s: %.*s\n", file, line, condition,
               static_cast<int>(message.size()), message.data());
  std::abort();
}

}  // namespace loom::detail
