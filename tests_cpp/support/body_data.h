// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Memory to run a body on, filled with interesting numbers, and comparison of what two kernels make
// of it. The same seed gives the same bytes everywhere.

#include "loom/fusion/body.h"
#include "loom/fusion/kernel.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loom::fusion::testing {

/// Small whole numbers below `n`, the same on every platform.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  std::uint64_t bits() { return engine_(); }

 private:
  std::mt19937_64 engine_;
};

/// Good enough for test data: the mantissa is cut.
[[nodiscard]] inline std::uint16_t cut_to_bfloat16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

/// One interesting element of `dtype` at `at`: ordinary numbers mostly, else limits, infinities,
/// NaN, zeros of both signs, denormals.
inline void store_interesting(Dice& dice, DType dtype, std::byte* at) {
  const auto put = [at](auto value) { std::memcpy(at, &value, sizeof value); };
  const bool special = dice.one_in(8);
  constexpr std::array kSpecial = {0.0,
                                   -0.0,
                                   1.0,
                                   -1.0,
                                   0.5,
                                   1e-40,
                                   -3e-42,
                                   3.4e38,
                                   -2.5,
                                   65504.0,
                                   2147483648.0,
                                   -9.3e18,
                                   std::numeric_limits<double>::infinity(),
                                   -std::numeric_limits<double>::infinity(),
                                   std::numeric_limits<double>::quiet_NaN()};
  const double number = special ? kSpecial[dice.below(kSpecial.size())]
                                : (dice.unit() * 2 - 1) * (dice.one_in(4) ? 300.0 : 3.0);
  // Integers: small ones mostly, else any bits.
  const auto whole =
      static_cast<std::int64_t>(special ? dice.bits() : dice.below(13) - std::uint64_t{6});
  switch (dtype) {
    case DType::kBool:
      return put(static_cast<std::uint8_t>(dice.below(2)));
    case DType::kUInt8:
    case DType::kInt8:
      return put(static_cast<std::int8_t>(whole));
    case DType::kInt16:
      return put(static_cast<std::int16_t>(whole));
    case DType::kInt32:
      return put(static_cast<std::int32_t>(
          special && dice.one_in(3) ? std::numeric_limits<std::int32_t>::min() : whole));
    case DType::kInt64:
      return put(special && dice.one_in(3) ? std::numeric_limits<std::int64_t>::min() : whole);
    case DType::kHalf:  // any bits, but few infinities and NaN
      return put(
          static_cast<std::uint16_t>(special ? dice.bits() : 0x3000 | (dice.bits() & 0x8FFF)));
    case DType::kBFloat16:
      return put(cut_to_bfloat16(static_cast<float>(number)));
    case DType::kFloat:
      return put(static_cast<float>(number));
    case DType::kDouble:
      return put(number);
  }
}

/// Whether two elements have the same bits, or are both NaN.
[[nodiscard]] inline bool same_element(DType dtype, const std::byte* a, const std::byte* b) {
  if (std::memcmp(a, b, size_of(dtype)) == 0) return true;
  const auto both_nan = [&]<class Number>(Number x, Number y) {
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return std::isnan(x) && std::isnan(y);
  };
  const auto narrow_nan = [&](std::uint16_t infinity) {
    std::uint16_t x = 0, y = 0;
    std::memcpy(&x, a, sizeof x);
    std::memcpy(&y, b, sizeof y);
    return (x & 0x7FFF) > infinity && (y & 0x7FFF) > infinity;
  };
  if (dtype == DType::kFloat) return both_nan(0.0F, 0.0F);
  if (dtype == DType::kDouble) return both_nan(0.0, 0.0);
  if (dtype == DType::kHalf) return narrow_nan(0x7C00);
  if (dtype == DType::kBFloat16) return narrow_nan(0x7F80);
  return false;
}

/// Memory that is aligned to 64 bytes.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t size) : lines_((size + 63) / 64) {}
  [[nodiscard]] std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }
  [[nodiscard]] const std::byte* data() const {
    return reinterpret_cast<const std::byte*>(lines_.data());
  }

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes{};
  };
  std::vector<Line> lines_;
};

struct RunShape {
  std::int64_t rows = 1, columns = 1;
  std::int64_t padding = 0;  ///< elements between rows; makes row strides larger than rows
};

/// Operands for runs of one body: every run begins with the same inputs.
class BodyData {
 public:
  /// With `in_place`, outputs replace inputs of the same size and kind where there are any.
  BodyData(const Body& body, RunShape shape, std::uint64_t seed, bool in_place = false)
      : body_(body), shape_(shape) {
    Dice dice(seed);
    for (const Input& input : body.inputs) {
      inputs_.push_back(make(input.dtype, input.uniform));
      for (std::size_t at = 0; at < bytes(inputs_.back()); at += size_of(input.dtype)) {
        store_interesting(dice, input.dtype, inputs_.back().memory.data() + at);
      }
    }
    for (const Type type : body.params) {
      constexpr std::array kDTypes = {DType::kBool, DType::kInt32, DType::kInt64, DType::kFloat,
                                      DType::kDouble};
      Param param{};
      store_interesting(dice, kDTypes[static_cast<std::size_t>(type)],
                        reinterpret_cast<std::byte*>(&param));
      params_.push_back(param);
    }
    std::vector<bool> replaced(body.inputs.size());
    for (const Output& output : body.outputs) {
      outputs_.push_back(make(output.dtype, output.uniform));
      replaces_.push_back(-1);
      for (std::size_t i = 0; in_place && i < body.inputs.size(); ++i) {
        const Input& input = body.inputs[i];
        if (replaced[i] || input.uniform != output.uniform ||
            size_of(input.dtype) != size_of(output.dtype)) {
          continue;
        }
        replaced[i] = true;
        replaces_.back() = static_cast<int>(i);
        break;
      }
    }
  }

  /// Runs the kernel on fresh copies of the inputs; results() are its outputs then.
  void run(const Kernel& kernel) {
    std::vector<Operand> inputs = inputs_;
    results_.clear();
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      results_.push_back(replaces_[i] < 0 ? outputs_[i] : Operand{});
    }
    std::vector<Place> from, to;
    for (Operand& input : inputs) from.push_back({input.memory.data(), input.row_stride});
    for (std::size_t i = 0; i < results_.size(); ++i) {
      Operand& result = replaces_[i] < 0 ? results_[i] : inputs[replaces_[i]];
      to.push_back({result.memory.data(), result.row_stride});
    }
    AlignedBytes scratch(kernel.scratch_bytes(shape_.columns));
    kernel.run({.rows = shape_.rows,
                .columns = shape_.columns,
                .inputs = from.data(),
                .outputs = to.data(),
                .params = params_.data(),
                .scratch = scratch.data()});
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (replaces_[i] >= 0) results_[i] = std::move(inputs[replaces_[i]]);
    }
  }

  [[nodiscard]] std::byte* input(std::size_t i, std::int64_t row, std::int64_t column) {
    return element(inputs_[i], row, column);
  }
  [[nodiscard]] Param& param(std::size_t i) { return params_[i]; }
  /// Of the last run.
  [[nodiscard]] std::byte* output(std::size_t i, std::int64_t row, std::int64_t column) {
    return element(results_[i], row, column);
  }

  /// The first output element that differs from another run's, as text; empty if none does. What is
  /// between the rows counts too.
  [[nodiscard]] std::string difference(BodyData& other) {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const DType dtype = body_.outputs[i].dtype;
      for (std::size_t at = 0; at < bytes(results_[i]); at += size_of(dtype)) {
        const std::byte* mine = results_[i].memory.data() + at;
        const std::byte* theirs = other.results_[i].memory.data() + at;
        if (same_element(dtype, mine, theirs)) continue;
        return "output " + std::to_string(i) + ", element " + std::to_string(at / size_of(dtype)) +
               ": " + hex(mine, dtype) + " and " + hex(theirs, dtype);
      }
    }
    return {};
  }

 private:
  struct Operand {
    AlignedBytes memory;
    std::int64_t row_stride = 0;
    std::size_t size = 0;  ///< of an element
  };

  Operand make(DType dtype, bool uniform) const {
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    std::int64_t stride = ((uniform ? 1 : shape_.columns) + shape_.padding) * size;
    if (body_.streaming) stride = (stride + 63) / 64 * 64;
    const auto all = static_cast<std::size_t>(shape_.rows * stride);
    return {AlignedBytes(all), stride, static_cast<std::size_t>(size)};
  }
  std::size_t bytes(const Operand& operand) const {
    return static_cast<std::size_t>(shape_.rows * operand.row_stride);
  }
  static std::byte* element(Operand& operand, std::int64_t row, std::int64_t column) {
    return operand.memory.data() + row * operand.row_stride +
           column * static_cast<std::int64_t>(operand.size);
  }
  static std::string hex(const std::byte* at, DType dtype) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (std::size_t i = size_of(dtype); i-- > 0;) {
      text += kDigits[static_cast<std::size_t>(at[i]) >> 4];
      text += kDigits[static_cast<std::size_t>(at[i]) & 15];
    }
    return text;
  }

  Body body_;
  RunShape shape_;
  std::vector<Operand> inputs_, outputs_, results_;
  std::vector<Param> params_;
  std::vector<int> replaces_;  ///< which input an output is stored over, or -1
};

}  // namespace loom::fusion::testing
