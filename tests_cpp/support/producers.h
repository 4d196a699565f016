// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A producer and a task that are plain to read, for tests of commands with several parts.
// Thread: as Producer and Task.

#include "loom/device/address.h"
#include "loom/fusion/producer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace loom::testing {

inline constexpr std::int64_t kRows = 6, kColumns = 128;

/// Copies a matrix, rectangle by rectangle; operators on a rectangle find the others untouched.
class CopyInRectangles final : public fusion::Producer {
 public:
  CopyInRectangles(const fusion::TensorAccess& to, const fusion::TensorAccess& from, int* finished)
      : to_(to), from_(from), finished_(finished) {}

  [[nodiscard]] const char* name() const noexcept override { return "copy"; }
  [[nodiscard]] fusion::Matrix result() const noexcept override {
    return {to_.data, to_.dtype, kRows, kColumns, to_.allocation};
  }
  void accesses(AccessList& list) const override {
    list.push_back({device_address(from_.data), kBytes, AccessKind::kRead});
    list.push_back({device_address(to_.data), kBytes, AccessKind::kReplace});
  }
  void run(std::byte* to, const fusion::Epilogue* epilogue) override {
    for (std::int64_t row = 0; row < kRows; row += kHeight) {
      for (std::int64_t column = 0; column < kColumns; column += kWidth) {
        if (epilogue != nullptr) epilogue->prefetch(row, kHeight, column, kWidth);
        for (std::int64_t r = row; r < row + kHeight; ++r) {
          const std::int64_t start = r * kColumns + column;
          std::copy_n(elements(from_.data) + start, kWidth, elements(to) + start);
        }
        if (epilogue == nullptr) continue;
        epilogue->run(row, kHeight, column, kWidth);
        ++*finished_;
      }
    }
  }

 private:
  static constexpr std::int64_t kHeight = 3, kWidth = 64;
  static constexpr std::size_t kBytes = kRows * kColumns * sizeof(float);

  static float* elements(std::byte* data) { return reinterpret_cast<float*>(data); }

  const fusion::TensorAccess to_, from_;
  int* const finished_;
};

/// Fills memory with twos.
class Fill final : public fusion::Task {
 public:
  explicit Fill(const fusion::TensorAccess& to) : to_(to) {}
  [[nodiscard]] const char* name() const noexcept override { return "fill"; }
  void accesses(AccessList& list) const override {
    list.push_back({device_address(to_.data), static_cast<std::size_t>(to_.numel) * sizeof(float),
                    AccessKind::kReplace});
  }
  void run() override { std::fill_n(reinterpret_cast<float*>(to_.data), to_.numel, 2.F); }

 private:
  const fusion::TensorAccess to_;
};

}  // namespace loom::testing
