// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Samples of one to three dimensions made from others, each element a weighted sum of a grid of
// elements: nearest, linear and cubic resampling and their gradients, of planes (or volumes) of
// elements, or of rows with an element of each channel (channels last). T: float, simd::BFloat16,
// simd::Half; sums are of float, rounded once. Thread: any, each with a room of its own.

#include <cstdint>
#include <vector>

namespace loom::kernels::pool_resample {

/// What each element of a result is made of, along one dimension: element i of taps
/// [begin[i], begin[i + 1]), whose places rise.
struct Taps {
  std::int64_t from = 1;  ///< elements of what the result is made of
  std::vector<std::int32_t> begin{0}, place;
  std::vector<float> weight;

  [[nodiscard]] std::int64_t to() const noexcept {
    return static_cast<std::int64_t>(begin.size()) - 1;
  }
  [[nodiscard]] std::int64_t most() const noexcept;
  void add(std::int32_t at, float counts);
  /// What was added since is the next element's.
  void finish_element() { begin.push_back(static_cast<std::int32_t>(place.size())); }
  /// Of one element: what is not resampled.
  [[nodiscard]] static Taps single();
};

/// The way back: what each element of the other side counts in.
[[nodiscard]] Taps transposed(const Taps& taps);

class Resampler {
 public:
  /// `channels` lie beside each other: of planes 1. A result that has fewer rows than what it is
  /// made of is mixed from rows first, else along the rows first.
  Resampler(Taps depth, Taps rows, Taps columns, std::int64_t channels, bool last);

  /// Rows of a sample's plane or volume, and elements of a row.
  [[nodiscard]] std::int64_t result_rows() const noexcept { return depth_.to() * rows_.to(); }
  [[nodiscard]] std::int64_t input_rows() const noexcept { return depth_.from * rows_.from; }
  [[nodiscard]] std::int64_t result_row() const noexcept { return columns_.to() * channels_; }
  [[nodiscard]] std::int64_t input_row() const noexcept { return columns_.from * channels_; }
  [[nodiscard]] std::int64_t channels() const noexcept { return channels_; }
  /// Whether elements are of as few others as kernels know.
  [[nodiscard]] bool fits() const noexcept;
  /// Floats of room.
  [[nodiscard]] std::int64_t room() const noexcept;

  /// Rows [first, last) of a sample.
  template <class T>
  void run(std::int64_t first, std::int64_t last, const T* from, float* room, T* to) const noexcept;

 private:
  /// The rows of the input that a row of the result is made of.
  struct Lines {
    const std::int32_t* line;
    const float* weight;
    const std::int32_t* slot;  ///< where it is kept
    std::int64_t count;
  };
  class LineList;
  class HeldRows;

  template <class T>
  void run_last(const Lines& lines, const T* from, float* room, T* to) const noexcept;
  template <class T>
  void copy_row(const T* from, T* to) const noexcept;
  template <class T>
  void mix_then_gather(const Lines& lines, const T* from, float* room, T* to) const noexcept;
  void gather(const float* row, float* to) const noexcept;

  Taps depth_, rows_, columns_;
  std::int64_t channels_;
  bool last_;
  bool flat_;           ///< of depth 1: what a row sees is what its taps say
  bool copies_;         ///< elements of a row are elements of one
  bool full_;           ///< all elements of a row have as many taps
  bool gathers_first_;  ///< rows of the input become as long as the result's, and are kept
  std::int64_t most_;   ///< taps along a row
  std::vector<std::int32_t> places_;  ///< of tap t of element i at t * elements + i, in planes
  std::vector<float> weights_;
  std::vector<std::int32_t> depth_slots_, rows_slots_;  ///< of each tap, what it adds to a slot
};

}  // namespace loom::kernels::pool_resample
