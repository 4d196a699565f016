// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Policy of linear algebra on the last two dimensions: a batch is cut along the first dimension
// that has more than one matrix. A single matrix is one block: LAPACK's algorithms are sequences of
// steps on all of it. Thread: any.

#include "loom/ops/aten/structured.h"

#include <algorithm>
#include <cmath>

namespace loom::ops {

/// With kVectors an operand of one dimension less is a batch of right-hand sides that are vectors,
/// as in _linalg_solve_ex. Integers are pivots, a vector for each matrix.
template <bool kVectors = false>
class Matrices {
 public:
  template <std::size_t kOutputs, class... Argument>
  static Along split(const std::array<at::Tensor, kOutputs>& outputs,
                     const Argument&... arguments) {
    Cut cut(first_of(arguments...));
    for (const at::Tensor& output : outputs) cut.add_output(output);
    (cut.add(arguments), ...);
    return cut.plan();
  }

 private:
  /// Collects the operands in their order.
  class Cut {
   public:
    explicit Cut(const at::Tensor& first) : first_(first) {
      const std::int64_t batch = first.dim() - 2;
      while (dim_ < batch && first.size(dim_) == 1) ++dim_;
      possible_ = dim_ < batch && first.size(dim_) > 1;
      plan_.dims.fill(SlicePlan::kWhole);
    }
    void add_output(const at::Tensor& output) {
      if (possible_ && output.numel() > 0) {  // one that nobody wants has no elements
        possible_ = output.dim() > dim_ && output.size(dim_) == first_.size(dim_);
        plan_.dims[operands_] = static_cast<std::int8_t>(dim_);
      }
      ++operands_;
    }
    void add(const at::Tensor& tensor) {
      if (possible_ && tensor.defined()) {
        const bool pivots = c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
        const bool vectors =
            pivots || (kVectors && tensor.sizes() == first_.sizes().slice(0, first_.dim() - 1));
        if (tensor.dim() == (vectors ? first_.dim() - 1 : first_.dim())) {
          possible_ = tensor.size(dim_) == first_.size(dim_);
          plan_.dims[operands_] = static_cast<std::int8_t>(dim_);
        } else {
          possible_ = !pivots && tensor.dim() <= 2;  // the same for all matrices
        }
      }
      ++operands_;
    }
    void add(const std::optional<at::Tensor>& tensor) { add(tensor.value_or(at::Tensor())); }
    template <class T>
    void add(const T&) {}

    [[nodiscard]] Along plan() {
      if (!possible_) {
        plan_.dims.fill(SlicePlan::kWhole);
        return plan_;
      }
      // Some n^3 multiplications a matrix, of which a vector does eight in the time of an addition.
      const auto elements = static_cast<double>(first_.numel()) / first_.size(dim_);
      const auto longest = std::max(first_.size(-1), first_.size(-2));
      plan_.cost = elements * static_cast<double>(longest) / 4;
      return plan_;
    }

   private:
    const at::Tensor& first_;
    Along plan_;
    std::int64_t dim_ = 0;
    std::size_t operands_ = 0;
    bool possible_ = false;
  };

  static const at::Tensor& first_of(const at::Tensor& first, const auto&...) { return first; }
};

/// Decompositions that say which matrix of the batch they fail for: that is the number of the
/// whole, so after an error in a block the kernel sees all.
class Decomposition {
 public:
  template <auto kCpu, std::size_t kOutputs, class... Value>
  static void launch(const char* name, const std::array<at::Tensor, kOutputs>& outputs,
                     const at::Tensor& self, const Value&... values) {
    std::apply(
        [&](const auto&... output) {
          launch_on(self.device(), name, Custom{}, InBlocks<kCpu, kOutputs>{},
                    Matrices<>::split(outputs, self, values...), out(output)..., self, values...);
        },
        outputs);
  }

 private:
  template <auto kCpu, std::size_t kOutputs>
  struct InBlocks {
    template <class... Operand>
    void operator()(Grid& grid, const Along& split, const Operand&... operands) const {
      const auto all = std::tie(operands...);
      [&]<std::size_t... kTensor, std::size_t... kValue>(std::index_sequence<kTensor...>,
                                                         std::index_sequence<kValue...>) {
        const TensorRef* const tensors[] = {&std::get<kTensor>(all)...};
        const SlicePlan plan = split.plan(tensors);
        const auto call = [&](auto part) {
          detail::outputs_first<kOutputs>(kCpu)(part(kTensor)...,
                                                std::get<sizeof...(kTensor) + kValue>(all)...);
        };
        try {
          grid.run(plan.blocks(), [&](std::int64_t block) {
            call([&](std::size_t i) {
              return plan.slice(*tensors[i], static_cast<int>(i), block * plan.block);
            });
          });
        } catch (...) {
          if (plan.blocks() == 1) throw;
          call([&](std::size_t i) { return tensors[i]->alias(); });
        }
      }(std::make_index_sequence<kOutputs + 1>(),
        std::make_index_sequence<sizeof...(Operand) - kOutputs - 1>());
    }
  };
};

}  // namespace loom::ops
