// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Some kernels take a dtype on CUDA that the CPU's do not, or are wrong about, and libraries that
// ask for `device.type == "cpu"` send such tensors everywhere else. Loom computes them in a wider
// dtype: tensors are converted, the operator is called again, and results are converted back.
// Nothing is waited for. Thread: any.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace loom::ops {

/// A set of dtypes.
class Dtypes {
 public:
  constexpr Dtypes(std::initializer_list<c10::ScalarType> dtypes) {
    for (const c10::ScalarType dtype : dtypes) bits_ |= bit(dtype);
  }
  [[nodiscard]] constexpr bool contains(c10::ScalarType dtype) const {
    return (bits_ & bit(dtype)) != 0;
  }

 private:
  static_assert(static_cast<int>(c10::ScalarType::NumOptions) <= 64);
  static constexpr std::uint64_t bit(c10::ScalarType dtype) {
    return std::uint64_t{1} << static_cast<unsigned>(dtype);
  }
  std::uint64_t bits_ = 0;
};

struct Widening {
  std::string_view name;  ///< without "aten::", for all overloads; in place, too
  Dtypes from;
  c10::ScalarType to;
  bool converts_back = true;
};

namespace detail {

inline constexpr Dtypes kComplexHalf{c10::kComplexHalf};
inline constexpr Dtypes kHalves{c10::kHalf, c10::kBFloat16};
inline constexpr Dtypes kIntegers{c10::kByte, c10::kChar, c10::kShort, c10::kInt, c10::kLong};

// What the lists of dtypes in PyTorch's operator database say of CUDA and not of the CPU.
inline constexpr Widening kWidenings[] = {
    {"abs", {c10::kBool}, c10::kByte},
    {"acos", kComplexHalf, c10::kComplexFloat},
    {"acosh", kComplexHalf, c10::kComplexFloat},
    {"angle", kComplexHalf, c10::kComplexFloat},
    {"asin", kComplexHalf, c10::kComplexFloat},
    {"asinh", kComplexHalf, c10::kComplexFloat},
    {"atan", kComplexHalf, c10::kComplexFloat},
    {"atanh", kComplexHalf, c10::kComplexFloat},
    {"cos", kComplexHalf, c10::kComplexFloat},
    {"cosh", kComplexHalf, c10::kComplexFloat},
    {"div", kComplexHalf, c10::kComplexFloat},
    {"exp", kComplexHalf, c10::kComplexFloat},
    {"lerp", kComplexHalf, c10::kComplexFloat},
    {"log", kComplexHalf, c10::kComplexFloat},
    {"logaddexp", kComplexHalf, c10::kComplexFloat},
    {"pow", kComplexHalf, c10::kComplexFloat},
    {"prod", kComplexHalf, c10::kComplexFloat},
    {"reciprocal", kComplexHalf, c10::kComplexFloat},
    {"rsqrt", kComplexHalf, c10::kComplexFloat},
    {"sigmoid", kComplexHalf, c10::kComplexFloat},
    {"sigmoid_backward", kComplexHalf, c10::kComplexFloat},
    {"sin", kComplexHalf, c10::kComplexFloat},
    {"sinh", kComplexHalf, c10::kComplexFloat},
    {"sqrt", kComplexHalf, c10::kComplexFloat},
    {"sum", kComplexHalf, c10::kComplexFloat},
    {"tan", kComplexHalf, c10::kComplexFloat},
    {"tanh", kComplexHalf, c10::kComplexFloat},
    {"tanh_backward", kComplexHalf, c10::kComplexFloat},
    {"_fft_c2c", kComplexHalf, c10::kComplexFloat},
    {"_fft_c2r", kComplexHalf, c10::kComplexFloat},
    {"avg_pool3d", kHalves, c10::kFloat},
    {"avg_pool3d_backward", kHalves, c10::kFloat},
    {"_upsample_bilinear2d_aa", kHalves, c10::kFloat},
    {"_upsample_bilinear2d_aa_backward", kHalves, c10::kFloat},
    {"_upsample_bicubic2d_aa", kHalves, c10::kFloat},
    {"_upsample_bicubic2d_aa_backward", kHalves, c10::kFloat},
    // The CPU kernel has places in 16 bits: beyond 32767 elements it reads other memory.
    {"grid_sampler_2d", kHalves, c10::kFloat},
    {"grid_sampler_2d_backward", kHalves, c10::kFloat},
    {"multi_margin_loss", kHalves, c10::kFloat},
    {"multi_margin_loss_backward", kHalves, c10::kFloat},
    {"multilabel_margin_loss_forward", kHalves, c10::kFloat},
    {"multilabel_margin_loss_backward", kHalves, c10::kFloat},
    // Counts in double are whole numbers, so are the products that the bins are found by.
    {"histc", kIntegers, c10::kDouble},
};

inline bool is_narrow(const Widening& widening, const at::Tensor& tensor) {
  return tensor.defined() && widening.from.contains(tensor.scalar_type());
}
inline bool is_narrow(const Widening& widening, const std::optional<at::Tensor>& tensor) {
  return tensor && is_narrow(widening, *tensor);
}
inline bool is_narrow(const Widening& widening, std::optional<c10::ScalarType> dtype) {
  return dtype && widening.from.contains(*dtype);
}
template <class T>
bool is_narrow(const Widening&, const T&) {
  return false;
}

}  // namespace detail

/// The entry of an operator ("abs", "abs_"), if it has one.
[[nodiscard]] constexpr std::optional<Widening> widening_of(std::string_view name) {
  if (name.ends_with('_')) name.remove_suffix(1);
  for (const Widening& each : detail::kWidenings) {
    if (each.name == name) return each;
  }
  return std::nullopt;
}

/// Whether a call with these arguments is to be computed in the wider dtype.
template <class... Argument>
[[nodiscard]] bool is_widened(const Widening& widening, const Argument&... arguments) {
  return (detail::is_narrow(widening, arguments) || ...);
}

/// Computes the operator whose arguments are on top of `stack` in the wider dtype and leaves the
/// results there, or returns false: no argument is one of the dtypes, or several are. Converts and
/// calls with the dispatch keys that this thread has.
[[nodiscard]] bool try_widen(const Widening& widening, const c10::OperatorHandle& op,
                             torch::jit::Stack* stack);

}  // namespace loom::ops
