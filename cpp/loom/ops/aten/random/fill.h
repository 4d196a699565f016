// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The kernel that fills a tensor with values of a distribution: value i of the stream goes to the
// element of logical index i. Thread: the worker of a stream, through launch().

#include "loom/base/ceil_div.h"
#include "loom/kernels/rng/distributions.h"
#include "loom/kernels/rng/philox.h"
#include "loom/kernels/rng/stepped_vector.h"
#include "loom/ops/aten/random/reserve.h"
#include "loom/ops/aten/random/strided_runs.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/self_overlap.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace loom::ops::random {

using kernels::rng::AllBits;
using kernels::rng::Bernoulli;
using kernels::rng::Cauchy;
using kernels::rng::Exponential;
using kernels::rng::Geometric;
using kernels::rng::kTileValues;
using kernels::rng::LogNormal;
using kernels::rng::LongIntegers;
using kernels::rng::MediumIntegers;
using kernels::rng::Normal;
using kernels::rng::philox_tiles;
using kernels::rng::ShortIntegers;
using kernels::rng::SteppedVector;
using kernels::rng::store_numbers;
using kernels::rng::transform;
using kernels::rng::Uniform;

/// Words that are in flight at once: together with their values they stay in the first-level cache.
inline constexpr int kChunkTiles = 32;
inline constexpr int kChunkWords = kChunkTiles * kTileWords;

/// Calls body(chunk) for every chunk of kChunkWords / words_per_value values of `self`, which they
/// fill, cut into blocks by their number only; in their order if elements share memory.
template <class Body>
void run_chunks(Grid& grid, const TensorRef& self, int words_per_value, Body&& body) {
  constexpr double kCost = 3 * kChunkWords;  // in additions: 1 ns a word
  const std::int64_t per_chunk = kChunkWords / words_per_value;
  const std::int64_t chunks = ceil_div(self.numel(), per_chunk);
  const std::int64_t length = may_overlap_itself(self) ? chunks : block_length(chunks, kCost);
  grid.run(ceil_div(chunks, length), [&](std::int64_t block) {
    const std::int64_t end = std::min(chunks, (block + 1) * length);
    for (std::int64_t chunk = block * length; chunk < end; ++chunk) body(chunk);
  });
}

/// Fills `self`, whose elements are of type T.
template <class T, class Distribution>
void fill(Grid& grid, const TensorRef& self, const PhiloxStream& stream,
          const Distribution& distribution) {
  using Value = Distribution::Value;
  constexpr std::int64_t kChunkValues = kChunkWords / Distribution::kWords;
  const StridedRuns<1> runs({&self});
  const bool direct = std::is_same_v<T, Value> && runs.contiguous(0, sizeof(T));
  run_chunks(grid, self, Distribution::kWords, [&](std::int64_t chunk) {
    alignas(64) std::uint32_t words[kChunkWords];
    alignas(64) Value values[kChunkValues];
    const std::int64_t begin = chunk * kChunkValues;
    const std::int64_t count = std::min(kChunkValues, self.numel() - begin);
    const std::int64_t tiles = (count + kTileValues<Distribution> - 1) / kTileValues<Distribution>;
    philox_tiles(stream, static_cast<std::uint64_t>(chunk) * kChunkTiles, tiles, words);
    if (direct && count == kChunkValues) {
      transform<Distribution>(distribution, words, tiles,
                              reinterpret_cast<Value*>(self.data()) + begin);
      return;
    }
    transform<Distribution>(distribution, words, tiles, values);
    runs.visit(begin, count, [&](const auto& pointers, std::int64_t done, std::int64_t length) {
      store_numbers(SteppedVector<Stored<T>>{pointers[0], runs.steps()[0]}, values + done, length);
    });
  });
}

/// Takes the words that `self` needs and queues fill<T>() of it. Requires: not empty.
template <class T, class Distribution>
void launch_fill(const char* name, const at::Tensor& self,
                 const std::optional<at::Generator>& generator, const Distribution& distribution) {
  const ReservedWords words = reserve(generator, self.device(), self.numel(), Distribution::kWords);
  launch(name, Custom{}, fill<T, Distribution>, out(self), words, distribution);
}

}  // namespace loom::ops::random
