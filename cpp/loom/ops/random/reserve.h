// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where the numbers of an operator come from. Thread: the caller's, so that ranges are taken in
// program order and a kernel's numbers do not depend on when it runs.

#include "loom/backend/generator.h"
#include "loom/ops/random/philox.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace loom::ops::random {

/// No generator is given: the device's own.
inline const std::optional<at::Generator> kDefaultGenerator;

/// Takes the words of `values` values of `words` each, in whole tiles, from `generator` or the
/// default generator of `device`. Throws: c10::Error when it is no loom generator.
inline PhiloxStream reserve(const std::optional<at::Generator>& generator, c10::Device device,
                            std::int64_t values, int words) {
  const std::uint64_t count = static_cast<std::uint64_t>(values) * static_cast<unsigned>(words);
  const std::uint64_t tiles = (count + kTileWords - 1) / kTileWords;
  const auto [seed, offset] =
      generator_or_default(generator, device.index()).reserve(tiles * kTileWords);
  return {seed, offset};
}

}  // namespace loom::ops::random
