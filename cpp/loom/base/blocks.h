// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "loom/base/ceil_div.h"

#include <algorithm>
#include <cstdint>

namespace loom {

/// [0, total) in blocks of `length`, the last of which may be shorter.
class Blocks {
 public:
  struct Range {
    std::int64_t first, last;
    [[nodiscard]] std::int64_t count() const noexcept { return last - first; }
  };
  Blocks(std::int64_t total, std::int64_t length) noexcept : total_(total), length_(length) {}
  [[nodiscard]] std::int64_t count() const noexcept { return ceil_div(total_, length_); }
  [[nodiscard]] Range operator[](std::int64_t index) const noexcept {
    return {index * length_, std::min((index + 1) * length_, total_)};
  }

 private:
  std::int64_t total_, length_;
};

}  // namespace loom
