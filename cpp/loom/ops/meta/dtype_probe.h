// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// CPU kernels find out late that they have no code for a dtype ("not implemented for 'Long'").
// Such an error belongs to the caller, not to the next synchronisation, so the first call of a
// kernel with a combination of dtypes runs it at once, on the caller, on one-element CPU stand-ins
// of its operands. Thread: any.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/Exception.h>
#include <c10/util/hash.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <tuple>

namespace loom::ops {

/// A CPU tensor of the tensor's dtype: of ones, with as many dimensions, all of size 1; or of
/// zeros, with its sizes, where there is nothing to compute.
[[nodiscard]] at::Tensor stand_in(const at::Tensor& tensor, bool of_its_sizes = false);

/// Whether there are so few elements that a stand-in may have as many.
[[nodiscard]] inline bool are_few(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.numel() <= 4096;
}

/// While it lives this thread's warnings go nowhere: they would be about a stand-in.
class NoWarnings {
 public:
  NoWarnings();

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

/// The dtype combinations a kernel has been seen to accept: a few, found without a lock.
class AcceptedDtypes {
 public:
  [[nodiscard]] bool contains(std::uint64_t key) const noexcept {
    // Relaxed: a key is all there is to read, and a missed one costs another probe.
    for (const auto& slot : slots_) {
      if (slot.load(std::memory_order_relaxed) == key) return true;
    }
    return false;
  }
  void insert(std::uint64_t key) noexcept {
    // Relaxed: as above; the oldest key gives way.
    const std::size_t slot = next_.fetch_add(1, std::memory_order_relaxed) % slots_.size();
    slots_[slot].store(key, std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<std::uint64_t>, 8> slots_{};
  std::atomic<std::size_t> next_{0};
};

namespace detail {

// Seven bits an operand; zero-dimensional ones count as other dtypes, since promotion does.
inline void add_to_key(std::uint64_t& key, const at::Tensor& tensor) {
  key <<= 7;
  if (!tensor.defined()) return;
  key |= (static_cast<std::uint64_t>(tensor.scalar_type()) + 1) << 1 |
         static_cast<std::uint64_t>(tensor.dim() == 0);
}
inline void add_to_key(std::uint64_t& key, const std::optional<at::Tensor>& tensor) {
  add_to_key(key, tensor ? *tensor : at::Tensor());
}
// What kind of number it is, since a kernel may have no place for complex ones.
inline void add_to_key(std::uint64_t& key, const at::Scalar& number) {
  key = key << 2 | static_cast<std::uint64_t>(number.isComplex()) << 1 |
        static_cast<std::uint64_t>(number.isFloatingPoint());
}
inline void add_to_key(std::uint64_t& key, bool flag) {
  key = key << 1 | static_cast<std::uint64_t>(flag);
}
// The name of a mode.
inline void add_to_key(std::uint64_t& key, std::string_view mode) {
  key = c10::hash_combine(key, std::hash<std::string_view>{}(mode));
}
template <class T>
void add_to_key(std::uint64_t&, const T&) {}

/// Whether a kernel can hold a number as one of the dtype; of those that it cannot, each is news.
bool fits(c10::ScalarType dtype, const at::Scalar& number);

inline bool is_ordinary(c10::ScalarType dtype, const at::Scalar& number) {
  return fits(dtype, number);
}
inline bool is_ordinary(c10::ScalarType dtype, const std::optional<at::Scalar>& number) {
  return !number || fits(dtype, *number);
}
template <class T>
bool is_ordinary(c10::ScalarType, const T&) {
  return true;
}

template <class T>
const T& stand_in_for(const T& argument, bool) {
  return argument;
}
inline at::Tensor stand_in_for(const at::Tensor& tensor, bool of_its_sizes) {
  return stand_in(tensor, of_its_sizes);
}
inline std::optional<at::Tensor> stand_in_for(const std::optional<at::Tensor>& tensor,
                                              bool of_its_sizes) {
  return tensor ? std::optional(stand_in(*tensor, of_its_sizes)) : std::nullopt;
}

template <class T>
bool is_small(const T&) {
  return true;
}
inline bool is_small(const at::Tensor& tensor) { return are_few(tensor); }
inline bool is_small(const std::optional<at::Tensor>& tensor) {
  return !tensor || are_few(*tensor);
}

/// Throws what `kernel` throws for operands like these, unless `accepted` knows them.
template <class Kernel, std::size_t kOutputs, class... Argument>
void probe_once(AcceptedDtypes& accepted, Kernel kernel,
                const std::array<at::Tensor, kOutputs>& outputs, const Argument&... arguments) {
  // Some kernels look at dtypes of empty tensors, others return first.
  const bool empty = outputs[0].numel() == 0;
  if (empty && !(is_small(arguments) && ... && true)) return;
  std::uint64_t key = 1;
  for (const at::Tensor& output : outputs) add_to_key(key, output);
  (add_to_key(key, arguments), ...);
  const bool ordinary = (is_ordinary(outputs[0].scalar_type(), arguments) && ... && true);
  if (ordinary && accepted.contains(key)) [[likely]]
    return;
  const NoWarnings about_stand_ins;
  std::array<at::Tensor, kOutputs> stand_ins;
  for (std::size_t i = 0; i < kOutputs; ++i) stand_ins[i] = stand_in(outputs[i], empty);
  std::apply([&](auto&... output) { kernel(stand_in_for(arguments, empty)..., output...); },
             stand_ins);
  if (ordinary && !empty) accepted.insert(key);
}

}  // namespace detail

/// Throws what the CPU kernel throws for operands of these dtypes, and for numbers beside them.
template <auto kCpu, std::size_t kOutputs, class... Argument>
void probe_dtypes(const std::array<at::Tensor, kOutputs>& outputs, const Argument&... arguments) {
  static AcceptedDtypes accepted;
  detail::probe_once(accepted, kCpu, outputs, arguments...);
}

}  // namespace loom::ops
