// SPDX-License-Identifier: BSD-3-Clause
// bernoulli_ and its variants.
#include "loom/base/ceil_div.h"
#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"
#include "loom/ops/meta/structured_meta.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/bernoulli_ops.h>

namespace loom::ops::random {
namespace {

using kernels::rng::load_numbers;

// Says which p is wrong, in the words of cpu.
[[noreturn]] void throw_wrong_probability(const double* p, std::int64_t count) {
  const double* const wrong =
      std::find_if(p, p + count, [](double value) { return !(value >= 0 && value <= 1); });
  TORCH_CHECK(false,
              "Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli_ expects "
              "every p to be in [0, 1], but got p=",
              *wrong);
}

// Element i is 1 with the probability p[i], which has the sizes of `self`.
template <class T, class P>
void fill_from_tensor(Grid& grid, const TensorRef& self, const TensorRef& p,
                      const PhiloxStream& stream) {
  const StridedRuns<2> runs({&self, &p});
  run_chunks(grid, self, Bernoulli::kWords, [&](std::int64_t chunk) {
    alignas(64) std::uint32_t words[kChunkWords];
    alignas(64) double probabilities[kChunkWords];
    alignas(64) std::uint8_t kept[kChunkWords];
    const std::int64_t begin = chunk * kChunkWords;
    const std::int64_t count = std::min<std::int64_t>(kChunkWords, self.numel() - begin);
    philox_tiles(stream, static_cast<std::uint64_t>(chunk) * kChunkTiles,
                 ceil_div(count, kTileWords), words);
    runs.visit(begin, count, [&](const auto& pointers, std::int64_t done, std::int64_t length) {
      const auto& steps = runs.steps();
      load_numbers(probabilities + done, SteppedVector<const Stored<P>>{pointers[1], steps[1]},
                   length);
      if (!kernels::rng::compare(words + done, probabilities + done, kept + done, length)) {
        throw_wrong_probability(probabilities + done, length);
      }
      store_numbers(SteppedVector<Stored<T>>{pointers[0], steps[0]}, kept + done, length);
    });
  });
}

template <class T>
void launch_from_tensor(const at::Tensor& self, const at::Tensor& p,
                        const OptionalGenerator& generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, p.scalar_type(), "bernoulli_tensor_cpu_p_", [&] {
        const ReservedWords words =
            reserve(generator, self.device(), self.numel(), Bernoulli::kWords);
        launch("bernoulli_", Custom{}, fill_from_tensor<T, scalar_t>, out(self), p, words);
      });
}

template <class>
struct BernoulliKernel {
  void operator()(const at::Tensor& self, double p, const OptionalGenerator& generator) const {
    AT_DISPATCH_ALL_TYPES_AND3(
        at::kBool, at::kBFloat16, at::kHalf, self.scalar_type(), "bernoulli_scalar_cpu_",
        [&] { launch_fill<scalar_t>("bernoulli_", self, generator, Bernoulli(p)); });
  }

  void operator()(const at::Tensor& self, const at::Tensor& p,
                  const OptionalGenerator& generator) const {
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kBFloat16, at::kHalf, self.scalar_type(),
                               "bernoulli_tensor_cpu_self_", [&] {
                                 // As on cpu, p may live on another device.
                                 const at::Tensor local = p.to(self.device());
                                 const auto expanded = at::expand_inplace(self, local);
                                 at::assert_no_partial_overlap(self, *expanded);
                                 launch_from_tensor<scalar_t>(self, *expanded, generator);
                               });
  }
};

// The templates want the type of a generator; the kernels do not use it.
using Any = at::Generator;
namespace templates = at::native::templates;

}  // namespace

at::Tensor& bernoulli_tensor_(at::Tensor& self, const at::Tensor& p, OptionalGenerator generator) {
  check_generator_suits(generator, self.device());
  if (self.is_cpu()) return self.bernoulli_(p.cpu(), std::move(generator));
  return templates::bernoulli_impl_<BernoulliKernel, Any>(self, p, std::move(generator));
}

at::Tensor& bernoulli_float_(at::Tensor& self, double p, OptionalGenerator generator) {
  return templates::bernoulli_impl_<BernoulliKernel, Any>(self, p, std::move(generator));
}

at::Tensor& bernoulli_out(const at::Tensor& self, OptionalGenerator generator, at::Tensor& result) {
  ops::detail::check_same_device<at::_ops::bernoulli_out>(self, generator, result);
  return templates::bernoulli_out_impl<BernoulliKernel, Any>(result, self, std::move(generator));
}

}  // namespace loom::ops::random
