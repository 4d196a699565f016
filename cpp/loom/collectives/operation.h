// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a rank is doing, for checks and for errors. Thread: a value.

#include "loom/base/check.h"
#include "loom/base/export.h"

#include <cstdint>
#include <string>

namespace loom::collectives {

struct Operation {
  const char* name = "";     ///< "all_reduce"; a literal
  std::uint64_t number = 0;  ///< how many operations of its group, or messages, came before it
  std::int64_t deadline_ns = INT64_MAX;  ///< of the steady clock
  std::uint64_t bytes = 0;               ///< of the tensors, where these are as many on all ranks
  std::uint64_t layout = 0;              ///< of those, in a number: 0 when all are contiguous
  std::uint64_t combination = 0;         ///< how elements are combined, in a number; 0 if not
  [[nodiscard]] std::string text() const { return detail::concat(name, " (number ", number, ")"); }
};

}  // namespace loom::collectives
