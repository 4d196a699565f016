// SPDX-License-Identifier: BSD-3-Clause
// native_dropout and its gradient, each one pass over memory.
#include "loom/base/ceil_div.h"
#include "loom/ops/aten/random/fill.h"
#include "loom/ops/aten/random/random_ops.h"
#include "loom/ops/launch/empty.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>

namespace loom::ops::random {
namespace {

using kernels::rng::scale_kept_elements;

template <class T>
using Elements = SteppedVector<Stored<T>>;
template <class T>
using ConstElements = SteppedVector<const Stored<T>>;
template <class T>
using Scale = kernels::rng::Computed<Stored<T>>::Type;

template <class T>
void dropout_kernel(Grid& grid, const TensorRef& output, const TensorRef& mask,
                    const TensorRef& input, const PhiloxStream& stream, const Bernoulli& keep,
                    Scale<T> scale) {
  const StridedRuns<3> runs({&output, &mask, &input});
  run_chunks(grid, output, Bernoulli::kWords, [&](std::int64_t chunk) {
    alignas(64) std::uint32_t words[kChunkWords];
    alignas(64) std::uint8_t kept[kChunkWords];
    const std::int64_t begin = chunk * kChunkWords;
    const std::int64_t count = std::min<std::int64_t>(kChunkWords, output.numel() - begin);
    const std::int64_t tiles = ceil_div(count, kTileWords);
    philox_tiles(stream, static_cast<std::uint64_t>(chunk) * kChunkTiles, tiles, words);
    transform<Bernoulli>(keep, words, tiles, kept);
    runs.visit(begin, count, [&](const auto& pointers, std::int64_t done, std::int64_t length) {
      const auto& steps = runs.steps();
      store_numbers(Elements<bool>{pointers[1], steps[1]}, kept + done, length);
      scale_kept_elements(Elements<T>{pointers[0], steps[0]},
                          ConstElements<T>{pointers[2], steps[2]},
                          {reinterpret_cast<std::byte*>(kept + done), 1}, length, scale);
    });
  });
}

template <class T>
void backward_kernel(Grid& grid, const TensorRef& result, const TensorRef& grad,
                     const TensorRef& mask, Scale<T> scale) {
  const StridedRuns<3> runs({&result, &grad, &mask});
  run_chunks(grid, result, 1, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunkWords;
    const std::int64_t count = std::min<std::int64_t>(kChunkWords, result.numel() - begin);
    runs.visit(begin, count, [&](const auto& pointers, std::int64_t, std::int64_t length) {
      const auto& steps = runs.steps();
      scale_kept_elements(Elements<T>{pointers[0], steps[0]},
                          ConstElements<T>{pointers[1], steps[1]}, {pointers[2], steps[2]}, length,
                          scale);
    });
  });
}

void launch_dropout(const at::Tensor& output, const at::Tensor& mask, const at::Tensor& input,
                    double keep, double scale) {
  TORCH_CHECK(0 <= keep && keep <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", keep);
  const ReservedWords words =
      reserve(kDefaultGenerator, input.device(), input.numel(), Bernoulli::kWords);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, input.scalar_type(), "native_dropout", [&] {
        launch("native_dropout", Custom{}, dropout_kernel<scalar_t>, out(output), out(mask), input,
               words, Bernoulli(keep), static_cast<Scale<scalar_t>>(scale));
      });
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  if (input.numel() == 0) return {input, at::empty_like(input)};
  const at::TensorOptions mask_options = input.options().dtype(at::kBool);
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, mask_options)};
  const double keep = 1 - p;
  const double scale = keep == 0 ? 0 : 1 / keep;
  at::Tensor mask = at::empty_like(input, mask_options);
  if (!at::isFloatingType(input.scalar_type())) {
    mask.bernoulli_(keep, kDefaultGenerator);
    return {input.mul(mask).mul_(scale), mask};
  }
  at::Tensor output = at::empty_like(input);
  launch_dropout(output, mask, input, keep, scale);
  return {std::move(output), std::move(mask)};
}

at::Tensor native_dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  const bool simple = at::isFloatingType(grad.scalar_type()) && mask.scalar_type() == at::kBool &&
                      grad.sizes() == mask.sizes() && grad.device() == mask.device();
  if (!simple) return grad.mul(mask).mul(scale);
  at::Tensor result = at::empty_like(grad);
  if (grad.numel() == 0) return result;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, grad.scalar_type(), "native_dropout_backward", [&] {
        launch("native_dropout_backward", Custom{}, backward_kernel<scalar_t>, out(result), grad,
               mask, static_cast<Scale<scalar_t>>(scale));
      });
  return result;
}

}  // namespace loom::ops::random
