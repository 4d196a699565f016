// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What lets a product or convolution share a command with the pointwise operators that follow it:
// while it waits for its turn they are added to it, and each rectangle of the result goes through
// them as soon as it is computed, on the same core, while it is in that core's caches.
// Thread: the worker and the cores, but for what submit_producer() and submit_ahead() (recorder.h)
// ask.

#include "loom/device/command_buffer.h"
#include "loom/fusion/op.h"

#include <cstddef>
#include <cstdint>

namespace loom::fusion {

/// Rows one after the other, without gaps.
struct Matrix {
  std::byte* data = nullptr;  ///< host-accessible
  DType dtype = DType::kFloat;
  std::int64_t rows = 0, columns = 0;
  const void* allocation = nullptr;  ///< as TensorAccess::allocation

  [[nodiscard]] std::int64_t numel() const noexcept { return rows * columns; }
  [[nodiscard]] const std::byte* end() const noexcept {
    return data + numel() * static_cast<std::int64_t>(size_of(dtype));
  }
};

/// What is done to a rectangle of a producer's result. Thread: several at once, of other
/// rectangles.
class Epilogue {
 public:
  virtual void run(std::int64_t row, std::int64_t rows, std::int64_t column,
                   std::int64_t columns) const = 0;
  /// Brings what run() will write into this core's caches, in the background.
  virtual void prefetch(std::int64_t row, std::int64_t rows, std::int64_t column,
                        std::int64_t columns) const noexcept = 0;

 protected:
  Epilogue() = default;
  Epilogue(const Epilogue&) = default;
  Epilogue& operator=(const Epilogue&) = default;
  ~Epilogue() = default;
};

/// A kernel that may go ahead of a producer that was submitted before it, as a batch norm's factors
/// do, which what follows a convolution needs.
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  /// The operator's; lives for ever.
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// Appends the device memory that it reads and writes.
  virtual void accesses(AccessList& list) const = 0;
  virtual void run() = 0;
};

/// A kernel whose result is a matrix.
class Producer {
 public:
  Producer() = default;
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;
  virtual ~Producer() = default;

  /// The operator's; lives for ever.
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  [[nodiscard]] virtual Matrix result() const noexcept = 0;
  /// Appends the device memory that it reads and writes.
  virtual void accesses(AccessList& list) const = 0;
  /// Computes the result, and calls `epilogue`, if there is one, with rectangles that make it up,
  /// each when it is final and nothing reads or writes it any more. `to`: where the matrix is to
  /// lie, result().data or other memory of its size if nobody will see it there.
  virtual void run(std::byte* to, const Epilogue* epilogue) = 0;
};

}  // namespace loom::fusion
