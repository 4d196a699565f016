// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// launch_open(): how a kernel gets to a worker whose result is a matrix that pointwise operators
// may follow in the same command; launch_ahead(): one that those may need and that kernel does not.
// Thread: as launch().

#include "loom/backend/allocator.h"
#include "loom/fusion/recorder.h"
#include "loom/ops/launch/fused.h"
#include "loom/ops/launch/launch.h"

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

namespace loom::ops {
namespace detail {

/// A command whose result may go through more operators.
template <class Launched>
class OpenKernel final : public fusion::Producer {
 public:
  OpenKernel(const char* name, const fusion::Matrix& result, Launched command)
      : name_(name), result_(result), command_(std::move(command)) {}
  [[nodiscard]] const char* name() const noexcept override { return name_; }
  [[nodiscard]] fusion::Matrix result() const noexcept override { return result_; }
  void accesses(AccessList& list) const override { command_.accesses(list); }
  void run(std::byte* to, const fusion::Epilogue* epilogue) override {
    command_.run_at(to, epilogue);
  }

 private:
  const char* const name_;
  const fusion::Matrix result_;
  Launched command_;
};

template <class Launched>
class AheadKernel final : public fusion::Task {
 public:
  AheadKernel(const char* name, Launched command) : name_(name), command_(std::move(command)) {}
  [[nodiscard]] const char* name() const noexcept override { return name_; }
  void accesses(AccessList& list) const override { command_.accesses(list); }
  void run() override { command_(); }

 private:
  const char* const name_;
  Launched command_;
};

}  // namespace detail

/// Multiply-adds: a kernel of fewer is done before the next operator is known, unless it has to
/// wait for others; one of fewer still takes no longer than what an open command costs.
inline constexpr double kLeastOpen = 8e6, kLeastOpenBehind = 3e5;

/// Whether operators will have the time to join a kernel of so many multiply-adds.
[[nodiscard]] inline bool may_be_joined(c10::Device device, double work) {
  if (work >= kLeastOpen) return true;
  if (work < kLeastOpenBehind) return false;
  const Queue& queue = current_queue(device.index());
  return queue.captured() || !queue.idle();
}

/// Whether blocks that make so few elements of the result finish nothing themselves, but all of it
/// is finished behind the last one: to begin with a rectangle takes some hundred nanoseconds, and
/// neighbours in a row write to the same cache lines.
[[nodiscard]] constexpr bool finishes_at_once(std::int64_t elements_of_block,
                                              std::int64_t elements) noexcept {
  return elements_of_block < 1024 && elements <= 16384;
}

/// Rows and columns of what launch_open() is to see as a matrix.
struct MatrixShape {
  std::int64_t rows, columns;
};

/// As launch() of a kernel that cuts itself. It waits a little for pointwise operators on its first
/// operand, whose elements lie as those of a matrix do, in rows without gaps, and calls
/// Grid::finish() for all parts of that. Requires: fusion_dtype() of it.
template <class Kernel, class... Operand>
void launch_open(const char* name, MatrixShape shape, Kernel kernel, Written first,
                 Operand&&... operands) {
  auto command = detail::make_command(first.tensor.device(), name, Custom{}, std::move(kernel),
                                      first, std::forward<Operand>(operands)...);
  const TensorRef& result = std::get<0>(command.operands).ref;
  const fusion::Matrix matrix{result.data(), *fusion_dtype(result.dtype()), shape.rows,
                              shape.columns, allocation_of(first.tensor.storage().data_ptr())};
  fusion::submit_producer(
      current_queue(first.tensor.device().index()),
      std::make_unique<detail::OpenKernel<decltype(command)>>(name, matrix, std::move(command)));
}

/// launch_open() of a kernel of `work` multiply-adds, or launch() if operators will not have the
/// time to join it.
template <class Kernel, class... Operand>
void launch_open_if_long(const char* name, MatrixShape shape, double work, Kernel kernel,
                         Written first, Operand&&... operands) {
  if (may_be_joined(first.tensor.device(), work)) {
    launch_open(name, shape, std::move(kernel), first, std::forward<Operand>(operands)...);
  } else {
    launch(name, Custom{}, std::move(kernel), first, std::forward<Operand>(operands)...);
  }
}

/// As launch() of a kernel that cuts itself, which may run before an open kernel in front of it
/// that it has nothing to do with.
template <class Kernel, class... Operand>
void launch_ahead(const char* name, Kernel kernel, Written first, Operand&&... operands) {
  auto command = detail::make_command(first.tensor.device(), name, Custom{}, std::move(kernel),
                                      first, std::forward<Operand>(operands)...);
  fusion::submit_ahead(
      current_queue(first.tensor.device().index()),
      std::make_unique<detail::AheadKernel<decltype(command)>>(name, std::move(command)));
}

}  // namespace loom::ops
