// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// launch_open(): how a kernel gets to a worker whose result is a matrix that pointwise operators
// may follow in the same command. Thread: as launch().

#include "loom/fusion/recorder.h"
#include "loom/ops/launch.h"

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
  void run(const fusion::Epilogue* epilogue) override { command_.run(epilogue); }

 private:
  const char* const name_;
  const fusion::Matrix result_;
  Launched command_;
};

}  // namespace detail

/// As launch() of a kernel that cuts itself. It waits a little for pointwise operators on its first
/// operand, a matrix in rows without gaps, and calls Grid::finish() for all parts of that.
template <class Kernel, class... Operand>
void launch_open(const char* name, fusion::DType dtype, Kernel kernel, Written first,
                 Operand&&... operands) {
  auto command = detail::make_command(first.tensor.device(), name, Custom{}, std::move(kernel),
                                      first, std::forward<Operand>(operands)...);
  const TensorRef& result = std::get<0>(command.operands).ref;
  const fusion::Matrix matrix{result.data(), dtype, result.sizes()[0], result.sizes()[1]};
  fusion::submit_producer(
      current_queue(first.tensor.device().index()),
      std::make_unique<detail::OpenKernel<decltype(command)>>(name, matrix, std::move(command)));
}

}  // namespace loom::ops
