// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/fill_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace loom::fusion {
namespace {

constexpr std::size_t kLine = 64, kNarrow = 2;
// Fewer columns are filled as fast by the interpreter, which does not compute a row apart.
constexpr std::int64_t kFewColumns = 64;

struct alignas(kLine) Line {
  std::byte bytes[kLine];
};

/// `to` is aligned to lines.
void stream(std::byte* to, const Line& line) noexcept {
#if defined(__SSE2__)
  for (std::size_t i = 0; i < kLine; i += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(line.bytes + i)));
  }
#else
  std::memcpy(to, line.bytes, kLine);
#endif
}

/// Repeats what `line` has at its beginning and all along.
void repeat(std::byte* to, const Line& line, std::size_t bytes, bool streaming) noexcept {
  std::size_t done = 0;
  if (streaming) {
    for (; done + kLine <= bytes; done += kLine) stream(to + done, line);
  } else {
    for (; done + kLine <= bytes; done += kLine) std::memcpy(to + done, line.bytes, kLine);
  }
  std::memcpy(to + done, line.bytes, bytes - done);
}

class FillKernel final : public Kernel {
 public:
  explicit FillKernel(const Body& body) : body_(body), one_(make_interpreter(body)) {}

  void run(const Arguments& arguments) const noexcept override {
    if (arguments.columns < kFewColumns) return one_->run(arguments);
    const bool same = body_.inputs.empty();
    std::array<Line, Body::kMaxOutputs> lines;
    for (std::int64_t row = 0; row < arguments.rows; ++row) {
      if (row == 0 || !same) compute(arguments, row, lines);
      for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
        const Output& output = body_.outputs[i];
        const Place& place = arguments.outputs[i];
        const std::int64_t elements = output.uniform ? 1 : arguments.columns;
        repeat(place.data + row * place.row_stride, lines[i],
               static_cast<std::size_t>(elements) * size_of(output.dtype), body_.streaming);
      }
    }
#if defined(__SSE2__)
    if (body_.streaming) _mm_sfence();
#endif
  }

  [[nodiscard]] std::size_t scratch_bytes(std::int64_t columns) const noexcept override {
    return one_->scratch_bytes(columns);
  }

 private:
  /// A line of each output's value in a row.
  void compute(const Arguments& arguments, std::int64_t row,
               std::array<Line, Body::kMaxOutputs>& lines) const noexcept {
    std::array<Place, Body::kMaxInputs> inputs;
    std::array<Place, Body::kMaxOutputs> outputs;
    for (std::size_t i = 0; i < body_.inputs.size(); ++i) {
      const Place& place = arguments.inputs[i];
      inputs[i] = {place.data + row * place.row_stride, 0};
    }
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) outputs[i] = {lines[i].bytes, 0};
    one_->run({.rows = 1,
               .columns = 1,
               .inputs = inputs.data(),
               .outputs = outputs.data(),
               .params = arguments.params,
               .scratch = arguments.scratch});
    for (std::size_t i = 0; i < body_.outputs.size(); ++i) {
      for (std::size_t has = size_of(body_.outputs[i].dtype); has < kLine; has *= 2) {
        std::memcpy(lines[i].bytes + has, lines[i].bytes, has);
      }
    }
  }

  const Body body_;
  const std::shared_ptr<const Kernel> one_;
};

}  // namespace

bool fills(const Body& body) {
  const auto narrow = [](const Output& output) {
    return !output.uniform && size_of(output.dtype) <= kNarrow;
  };
  return std::ranges::all_of(body.inputs, &Input::uniform) &&
         std::ranges::none_of(body.instructions,
                              [](const Instruction& each) { return is_reduction(each.op); }) &&
         std::ranges::any_of(body.outputs, narrow);
}

std::shared_ptr<const Kernel> make_fill_kernel(const Body& body) {
  return std::make_shared<const FillKernel>(body);
}

}  // namespace loom::fusion
