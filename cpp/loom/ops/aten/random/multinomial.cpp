// SPDX-License-Identifier: BSD-3-Clause
// multinomial. ATen's function checks the arguments and draws without replacement (by exponential_
// and topk); drawing with replacement is a stub of it, given here for loom.
#include "loom/kernels/rng/multinomial.h"

#include "loom/backend/registration.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"

#include <ATen/Dispatch.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/multinomial_native.h>

#include <algorithm>

namespace loom::ops::random {
namespace {

using kernels::rng::Categories;
using kernels::rng::WeightFault;

// Row `row` of a matrix, or a vector.
template <class T>
SteppedVector<T> row_of(const TensorRef& tensor, std::int64_t row) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t begin = tensor.dim() > 1 ? row * tensor.strides()[0] : 0;
  return {tensor.data() + begin * kBytes, tensor.strides().back() * kBytes};
}

template <class T>
void assign(Categories& categories, const TensorRef& weights, std::int64_t row) {
  const WeightFault fault =
      categories.assign(row_of<const Stored<T>>(weights, row), weights.sizes().back());
  TORCH_CHECK(fault != WeightFault::kNegative,
              "invalid multinomial distribution (encountering probability entry < 0)");
  TORCH_CHECK(fault != WeightFault::kNotFinite,
              "invalid multinomial distribution (encountering probability entry = infinity or "
              "NaN)");
  TORCH_CHECK(fault != WeightFault::kNoSum,
              "invalid multinomial distribution (sum of probabilities <= 0)");
}

// Draws samples [begin, end) of `row`; sample s of row r uses the words of value r * samples + s.
void draw(const TensorRef& result, const Categories& categories, const PhiloxStream& stream,
          std::int64_t row, std::int64_t begin, std::int64_t end) {
  SteppedVector<std::int64_t> to = row_of<std::int64_t>(result, row);
  to.data += begin * to.step;
  categories.draw(to, end - begin, stream, row * result.sizes().back() + begin);
}

template <class T>
void multinomial_kernel(Grid& grid, const TensorRef& result, const TensorRef& weights,
                        const PhiloxStream& stream) {
  const std::int64_t samples = result.sizes().back();
  const std::int64_t rows = result.numel() / samples;
  if (rows == 1) {
    Categories categories;
    assign<T>(categories, weights, 0);
    constexpr std::int64_t kBlock = 4096;
    grid.run(ceil_div(samples, kBlock), [&](std::int64_t block) {
      const std::int64_t begin = block * kBlock;
      draw(result, categories, stream, 0, begin, std::min(samples, begin + kBlock));
    });
    return;
  }
  const double cost =
      2.0 * static_cast<double>(weights.sizes().back()) + 100.0 * static_cast<double>(samples);
  const std::int64_t length = block_length(rows, cost);
  grid.run(ceil_div(rows, length), [&](std::int64_t block) {
    Categories categories;
    for (std::int64_t row = block * length; row < std::min(rows, (block + 1) * length); ++row) {
      assign<T>(categories, weights, row);
      draw(result, categories, stream, row, 0, samples);
    }
  });
}

void with_replacement(at::Tensor& result, const at::Tensor& weights, std::int64_t,
                      std::optional<at::Generator> generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, weights.scalar_type(), "multinomial", [&] {
        const ReservedWords words =
            reserve(generator, result.device(), result.numel(), Categories::kWords);
        launch("multinomial", Custom{}, multinomial_kernel<scalar_t>, out(result), weights, words);
      });
}

}  // namespace

at::Tensor multinomial(const at::Tensor& self, std::int64_t samples, bool replacement,
                       OptionalGenerator generator) {
  return at::native::multinomial(self, samples, replacement, std::move(generator));
}

at::Tensor& multinomial_out(const at::Tensor& self, std::int64_t samples, bool replacement,
                            OptionalGenerator generator, at::Tensor& result) {
  return at::native::multinomial_out(self, samples, replacement, std::move(generator), result);
}

}  // namespace loom::ops::random

namespace at::native {
[[maybe_unused]] static const bool loom_multinomial = loom::register_at_load([] {
  REGISTER_PRIVATEUSE1_DISPATCH(multinomial_with_replacement_stub,
                                &loom::ops::random::with_replacement)
});
}  // namespace at::native
