// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a rank is doing, for checks and for errors. Thread: a value.

#include "loom/base/check.h"
#include "loom/base/export.h"

#include <cstdint>
#include <string>

namespace loom::collectives {

/// Names a dtype in errors.
using DtypeName = const char* (*)(std::uint8_t dtype);

struct Operation {
  const char* name = "";     ///< "all_reduce"; a literal
  std::uint64_t number = 0;  ///< how many operations of its group, or messages, came before it
  std::int64_t deadline_ns = INT64_MAX;  ///< of the steady clock
  std::uint64_t bytes = 0;               ///< of the tensors, where these are as many on all ranks
  std::uint64_t layout = 0;              ///< of those, in a number: 0 when all are contiguous
  std::uint64_t combination = 0;         ///< how elements are combined, in a number; 0 if not
  int root = -1;                         ///< the rank that gives or gets all; -1 if there is none
  std::uint8_t dtype = kNone;            ///< of the first tensor
  std::uint8_t reduction = kNone;        ///< a Reduction
  DtypeName dtype_name = nullptr;

  static constexpr std::uint8_t kNone = 255;
  /// "reduce (number 4, root 1)".
  [[nodiscard]] LOOM_API std::string text() const;
  /// For comparisons: "reduce (number 4, root 1) of 40 bytes of Float with SUM".
  [[nodiscard]] LOOM_API std::string description() const;
};

}  // namespace loom::collectives
