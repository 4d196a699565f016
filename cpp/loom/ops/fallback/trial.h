// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A trial finds out at the call whether the CPU operator refuses its arguments for what they are
// (dtypes, sizes, numbers, flags), not for the values in them: it runs the operator at once, on the
// caller, on CPU tensors of zeros of the same geometry. What fails the trial goes to the CPU
// operator with its values, which decides; so a trial may be wrong about a call without harm, and
// costs a first call only. Thread: any.

#include "loom/ops/meta/dtype_probe.h"

#include <ATen/core/boxing/impl/boxing.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace loom::ops {

/// kNotKnown: a trial would take too long.
enum class Verdict { kTaken, kRefused, kNotKnown };

/// How much memory a trial needs: the elements of an argument, and the gaps between them.
[[nodiscard]] std::int64_t trial_elements(const at::Tensor& tensor);

/// Whether the CPU operator takes tensors of zeros in place of those among the arguments.
[[nodiscard]] bool passes_trial(const c10::OperatorHandle& op,
                                c10::ArrayRef<c10::IValue> arguments);

namespace detail {

inline std::int64_t elements_of(const at::Tensor& tensor) { return trial_elements(tensor); }
inline std::int64_t elements_of(const std::optional<at::Tensor>& tensor) {
  return tensor ? trial_elements(*tensor) : 0;
}
template <class T>
std::int64_t elements_of(const T&) {
  return 0;
}

inline c10::ScalarType first_dtype(const at::Tensor& tensor, const auto&...) {
  return tensor.scalar_type();
}
inline c10::ScalarType first_dtype(const auto&, const auto&... more) {
  return first_dtype(more...);
}

[[nodiscard]] bool passes_trial(const char* name, const char* overload,
                                torch::jit::Stack arguments);

}  // namespace detail

/// Calls of one kernel, whose dtypes and kinds of numbers are each tried once.
class TriedDtypes {
 public:
  /// True if the CPU operator shall decide about this call, and then says so by accept().
  template <class... Argument>
  [[nodiscard]] bool refuses(const char* name, const char* overload, const Argument&... arguments) {
    const std::uint64_t key = key_of(arguments...);
    const c10::ScalarType dtype = detail::first_dtype(arguments...);
    const bool ordinary = (detail::is_ordinary(dtype, arguments) && ...);
    if (ordinary && accepted_.contains(key)) [[likely]]
      return false;
    const std::int64_t elements = (detail::elements_of(arguments) + ... + 0);
    if (elements > kMostElements) return false;
    const bool taken =
        detail::passes_trial(name, overload, c10::impl::boxArgs<Argument...>(arguments...));
    if (taken && ordinary) accepted_.insert(key);
    return !taken;
  }
  template <class... Argument>
  void accept(const Argument&... arguments) {
    accepted_.insert(key_of(arguments...));
  }

 private:
  // A trial of more would take too long.
  static constexpr std::int64_t kMostElements = 1 << 18;

  template <class... Argument>
  static std::uint64_t key_of(const Argument&... arguments) {
    std::uint64_t key = 1;
    (detail::add_to_key(key, arguments), ...);
    return key;
  }

  AcceptedDtypes accepted_;
};

}  // namespace loom::ops
