// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The random generator of a device: a seed and an offset into the counter-based Philox 4x32-10
// sequence of that seed. Kernels take a (seed, offset) pair that was reserved on the caller's
// thread, in program order, so that numbers depend neither on timing nor on the number of threads.
// The offset counts 32-bit numbers and is a multiple of 4 (one Philox block is four of them).
// Commands that are captured in a graph are given a place where they find both at each replay
// (philox_graph.h). Meanwhile the state cannot be asked for or set, since it is not known.
// Thread: any, but for graphsafe_set_state(). The state has a lock of its own; it does not matter
// whether the caller holds GeneratorImpl::mutex_.

#include "loom/backend/seed.h"
#include "loom/backend/torch_features.h"
#include "loom/base/export.h"

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace loom {

class Queue;

/// Where the numbers of one replay of a graph begin.
struct PhiloxOrigin {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

/// The numbers that one command was given.
struct PhiloxRange {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;              ///< of the first number; if captured, from the origin on
  const PhiloxOrigin* origin = nullptr;  ///< of a captured command; it lives as long as the graph

  /// Seed and offset of the first number. On the worker that runs the command.
  [[nodiscard]] PhiloxOrigin first() const noexcept {
    if (origin == nullptr) [[likely]] {
      return {seed, offset};
    }
    return {origin->seed, origin->offset + offset};
  }
};

class LOOM_API PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device, std::uint64_t seed = c10::default_rng_seed_val);
  ~PhiloxGenerator() override;

  /// Takes `count` 32-bit numbers: returns the seed and the offset of the first, and moves the
  /// offset past the last, up to a multiple of 4.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> reserve(std::uint64_t count);

  /// As reserve(), for a command that is submitted to `queue` next. While the queue is captured,
  /// the numbers are the graph's, and this generator stays where it is.
  [[nodiscard]] PhiloxRange reserve_for(const Queue& queue, std::uint64_t count);

  /// True when both are one sequence: graphsafe_get_state().
  [[nodiscard]] bool shares_state_with(const PhiloxGenerator& other) const noexcept {
    return state_ == other.state_;
  }

  // These throw loom::Error while the current stream of the device is captured.

  /// Sets the offset back to 0.
  void set_current_seed(std::uint64_t seed) override;
  [[nodiscard]] std::uint64_t current_seed() const override;
  /// Takes a seed from the system and returns it.
  std::uint64_t seed() override;
  /// Throws: c10::Error unless a multiple of 4.
  void set_offset(std::uint64_t offset) override;
  [[nodiscard]] std::uint64_t get_offset() const override;

  /// The state is a byte tensor on the CPU, as CUDA's: 8 bytes of seed, 8 of offset.
  void set_state(const c10::TensorImpl& new_state) override;
  [[nodiscard]] c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  /// A generator that shares this one's state, and the way to adopt it. Adopting requires that no
  /// other thread uses this generator at the same time.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& new_state) override;
  [[nodiscard]] c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

#if LOOM_TORCH_HAS_PHILOX_STATE
  /// Takes `increment` numbers, for kernels that are not loom's: gives the seed, the offset of the
  /// first number, and 0, each as a tensor on the CPU of one int64 with the bits of the number.
  void philox_state(std::uint64_t increment, at::Tensor& seed, at::Tensor& offset,
                    at::Tensor& intragraph_offset) override;
#endif

  [[nodiscard]] static c10::DeviceType device_type();

 private:
  struct State;
  PhiloxGenerator(c10::DeviceIndex device, std::shared_ptr<State> state);
  PhiloxGenerator* clone_impl() const override;
  void check_not_captured(const char* api) const;

  // Shared with the generators that graphsafe_get_state() gave out.
  std::shared_ptr<State> state_;
};

/// The default generator of a device (-1 = the current one); seeded from the system at its first
/// use. Throws: c10::Error when there is no such device.
[[nodiscard]] LOOM_API const at::Generator& default_generator(c10::DeviceIndex device = -1);

/// The generator that an operator uses: `generator` if given, else the device's default.
/// Throws: c10::Error when it is not a loom generator.
[[nodiscard]] LOOM_API PhiloxGenerator& generator_or_default(
    const std::optional<at::Generator>& generator, c10::DeviceIndex device = -1);

}  // namespace loom
