// SPDX-License-Identifier: BSD-3-Clause
// multinomial. ATen's function checks the arguments and draws without replacement (by exponential_
// and topk); drawing with replacement is a stub of it, given here for loom.
#include "loom/base/ceil_div.h"
#include "loom/kernels/rng/word_reader.h"
#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"

#include <ATen/Dispatch.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/multinomial_native.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace loom::ops::random {
namespace {

using kernels::rng::WordReader;

constexpr int kDrawWords = 2;

// The sums of the first 1, 2, ... entries of a row of weights.
template <class T>
class Sums {
 public:
  void assign(const TensorRef& weights, std::int64_t row) {
    const bool matrix = weights.dim() > 1;
    const T* data = reinterpret_cast<const T*>(weights.data());
    if (matrix) data += row * weights.strides()[0];
    const std::int64_t step = weights.strides().back();
    sums_.resize(static_cast<std::size_t>(weights.sizes().back()));
    double sum = 0;
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const auto weight = static_cast<double>(data[static_cast<std::int64_t>(i) * step]);
      TORCH_CHECK(weight >= 0 || std::isnan(weight),
                  "invalid multinomial distribution (encountering probability entry < 0)");
      TORCH_CHECK(std::isfinite(weight),
                  "invalid multinomial distribution (encountering probability entry = infinity or "
                  "NaN)");
      sums_[i] = sum += weight;
    }
    TORCH_CHECK(sum > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
  }

  // The category that u of [0, 1) falls into; never one of weight 0.
  [[nodiscard]] std::int64_t pick(double u) const {
    const double total = sums_.back();
    const double point = std::min(u * total, std::nextafter(total, 0.0));
    // The first sum beyond the point, searched without branches that nobody could predict.
    const double* first = sums_.data();
    for (std::size_t left = sums_.size(); left > 1;) {
      const std::size_t half = left / 2;
      first += first[half - 1] <= point ? half : 0;
      left -= half;
    }
    return first - sums_.data();
  }

 private:
  std::vector<double> sums_;
};

// Draws samples [begin, end) of `row`; sample s of row r uses the words of value r * samples + s.
template <class T>
void draw(const TensorRef& result, const Sums<T>& sums, const PhiloxStream& stream,
          std::int64_t row, std::int64_t begin, std::int64_t end) {
  const bool matrix = result.dim() > 1;
  auto* const data =
      reinterpret_cast<std::int64_t*>(result.data()) + (matrix ? row * result.strides()[0] : 0);
  const std::int64_t step = result.strides().back();
  WordReader<kDrawWords> reader(stream, row * result.sizes().back() + begin);
  for (std::int64_t i = begin; i < end; ++i) {
    const auto [low, high] = reader.next();
    const std::uint64_t bits = low | std::uint64_t{high} << 32;
    data[i * step] = sums.pick(static_cast<double>(bits >> 11) * 0x1p-53);
  }
}

template <class T>
void multinomial_kernel(Grid& grid, const TensorRef& result, const TensorRef& weights,
                        const PhiloxStream& stream) {
  const std::int64_t samples = result.sizes().back();
  const std::int64_t rows = result.numel() / samples;
  if (rows == 1) {
    Sums<T> sums;
    sums.assign(weights, 0);
    constexpr std::int64_t kBlock = 4096;
    grid.run(ceil_div(samples, kBlock), [&](std::int64_t block) {
      const std::int64_t begin = block * kBlock;
      draw(result, sums, stream, 0, begin, std::min(samples, begin + kBlock));
    });
    return;
  }
  const double cost =
      2.0 * static_cast<double>(weights.sizes().back()) + 100.0 * static_cast<double>(samples);
  const std::int64_t length = block_length(rows, cost);
  grid.run(ceil_div(rows, length), [&](std::int64_t block) {
    Sums<T> sums;
    for (std::int64_t row = block * length; row < std::min(rows, (block + 1) * length); ++row) {
      sums.assign(weights, row);
      draw(result, sums, stream, row, 0, samples);
    }
  });
}

void with_replacement(at::Tensor& result, const at::Tensor& weights, std::int64_t,
                      std::optional<at::Generator> generator) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, weights.scalar_type(), "multinomial", [&] {
        const ReservedWords words = reserve(generator, result.device(), result.numel(), kDrawWords);
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
REGISTER_PRIVATEUSE1_DISPATCH(multinomial_with_replacement_stub,
                              &loom::ops::random::with_replacement)
}  // namespace at::native
