// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where the numbers of an operator come from. Thread: the caller's, so that ranges are taken in
// program order and a kernel's numbers do not depend on when it runs.

#include "loom/backend/generator.h"
#include "loom/backend/stream.h"
#include "loom/base/ceil_div.h"
#include "loom/kernels/rng/philox.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace loom::ops::random {

using kernels::rng::kTileWords;
using kernels::rng::PhiloxStream;

/// No generator is given: the device's own.
inline const std::optional<at::Generator> kDefaultGenerator;

/// A range of the sequence as commands carry it: their kernels are lent a PhiloxStream (launch.h).
struct ReservedWords {
  PhiloxRange range;
  [[nodiscard]] PhiloxStream lend() const noexcept {
    const PhiloxOrigin first = range.first();
    return {first.seed, first.offset};
  }
};

/// A loom generator also brings operators on host tensors here: throws PyTorch's message for those.
inline void check_generator_suits(const std::optional<at::Generator>& generator,
                                  c10::Device device) {
  TORCH_CHECK(device.is_privateuseone() || !generator || !generator->defined(), "Expected a '",
              device.type(), "' device type for generator but found '", generator->device().type(),
              "'");
}

/// Takes the words of `values` values of `words` each, in whole tiles, from `generator` or the
/// default generator of `device`, for a command that is submitted to its current stream next.
/// Throws: c10::Error when it is no loom generator, or `device` no loom device.
inline ReservedWords reserve(const std::optional<at::Generator>& generator, c10::Device device,
                             std::int64_t values, int words) {
  check_generator_suits(generator, device);
  const std::uint64_t count = static_cast<std::uint64_t>(values) * static_cast<unsigned>(words);
  const std::uint64_t tiles = ceil_div(count, kTileWords);
  return {generator_or_default(generator, device.index())
              .reserve_for(current_queue(device.index()), tiles * kTileWords)};
}

}  // namespace loom::ops::random
