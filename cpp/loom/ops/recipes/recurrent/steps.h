// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which rows of a sequence belong to which step: as many in each, or fewer and fewer (a
// PackedSequence). Rows of a step lie beside each other, those of the longest samples first.
// Thread: any; never changes.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace loom::ops::recurrent {

class Steps {
 public:
  Steps() noexcept = default;  ///< none
  Steps(std::int64_t count, std::int64_t batch) noexcept : count_(count), batch_(batch) {}
  /// Requires: none is 0, none is larger than the one before.
  explicit Steps(const std::vector<std::int64_t>& batch_sizes)
      : Steps(static_cast<std::int64_t>(batch_sizes.size()), batch_sizes.front()) {
    auto ends = std::make_shared<std::vector<std::int64_t>>();
    ends->reserve(batch_sizes.size());
    std::int64_t end = 0;
    for (const std::int64_t size : batch_sizes) ends->push_back(end += size);
    ends_ = std::move(ends);
  }

  /// Numbers that tell described() all about the steps.
  [[nodiscard]] std::vector<std::int64_t> description() const {
    std::vector<std::int64_t> numbers{batch_};
    for (std::int64_t step = 0; ends_ && step < count_; ++step) numbers.push_back(rows(step));
    if (!ends_) numbers.push_back(-count_);
    return numbers;
  }
  [[nodiscard]] static Steps described(const std::vector<std::int64_t>& numbers) {
    if (numbers[1] < 0) return {-numbers[1], numbers[0]};
    return Steps(std::vector<std::int64_t>(numbers.begin() + 1, numbers.end()));
  }

  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// Rows of the first step, which has the most.
  [[nodiscard]] std::int64_t batch() const noexcept { return batch_; }
  /// Rows of all steps.
  [[nodiscard]] std::int64_t rows() const noexcept { return end(count_ - 1); }
  [[nodiscard]] std::int64_t first_row(std::int64_t step) const noexcept {
    return step == 0 ? 0 : end(step - 1);
  }
  [[nodiscard]] std::int64_t rows(std::int64_t step) const noexcept {
    return end(step) - first_row(step);
  }

 private:
  [[nodiscard]] std::int64_t end(std::int64_t step) const noexcept {
    return ends_ ? (*ends_)[static_cast<std::size_t>(step)] : (step + 1) * batch_;
  }

  std::int64_t count_ = 0, batch_ = 0;
  std::shared_ptr<const std::vector<std::int64_t>> ends_;  // of the steps' rows, if packed
};

/// Steps in the order in which a layer takes them.
struct Walk {
  Steps steps;
  bool reverse = false;

  [[nodiscard]] std::int64_t count() const noexcept { return steps.count(); }
  [[nodiscard]] std::int64_t first_row(std::int64_t index) const noexcept {
    return steps.first_row(step(index));
  }
  /// 0 before the first one and after the last one.
  [[nodiscard]] std::int64_t rows(std::int64_t index) const noexcept {
    return index < 0 || index >= count() ? 0 : steps.rows(step(index));
  }

 private:
  [[nodiscard]] std::int64_t step(std::int64_t index) const noexcept {
    return reverse ? steps.count() - 1 - index : index;
  }
};

}  // namespace loom::ops::recurrent
