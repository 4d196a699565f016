// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Copies between tensors of one dtype whose elements are in another order, or are parts of larger
// tensors: permutations, changes of the memory format, concatenations, and flips, where the source
// is walked backwards (its strides are negative). Dimensions that lie together in both tensors
// become one; what is left is runs of bytes, or matrices that are transposed tile by tile, or
// elements that go by a table. Cut into blocks by bytes alone.
// Thread: made on one, read by the cores. Requires: the tensors do not overlap.

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/element_order.h"
#include "loom/kernels/copy/transpose_tile.h"
#include "loom/kernels/tensor_view.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace loom::kernels {

class StridedCopy {
 public:
  /// Nothing if the copy has none of the forms (the source is broadcast, say), or too many
  /// dimensions. Requires: same sizes and dtype, at least one element. `total_bytes` is the size of
  /// the whole result that this copy is a part of: large ones are written past the caches.
  [[nodiscard]] static std::optional<StridedCopy> between(const TensorView& to,
                                                          const TensorView& from,
                                                          std::size_t total_bytes);

  [[nodiscard]] std::int64_t blocks() const noexcept { return ceil_div(units_, units_per_block_); }
  /// Bytes of all blocks.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Throws: std::bad_alloc.
  void run(std::int64_t block) const;

 private:
  static constexpr int kMaxDims = 8;
  static constexpr int kSquareTiles = 8;  // a side: 256 KiB of items of 4 bytes

  enum class Form : std::uint8_t {
    kRuns,      ///< or pieces of them
    kReversed,  ///< runs whose elements come backwards, or pieces of them
    kTiles,     ///< of matrices
    kSquares,   ///< the same, some tiles together
    kNarrow,    ///< parts of matrices with a few rows or columns
    kTable,     ///< the same small permutation again and again
  };

  struct Dim {
    std::int64_t size;
    std::ptrdiff_t to, from;  // bytes
  };

  /// A run: its index in each dimension, and where it is.
  struct Place {
    std::array<std::int64_t, kMaxDims> index;
    std::byte* to;
    const std::byte* from;
  };

  void add_dims(const TensorView& to, const TensorView& from);
  bool choose_form();
  bool choose_reversed();
  bool choose_table();
  bool choose_turned();
  void fill_table(int first);
  void cut(std::size_t total_bytes);
  std::size_t cut_runs();
  std::size_t cut_tiles(std::size_t total_bytes);
  [[nodiscard]] std::int64_t outer() const noexcept;
  [[nodiscard]] Place place_of(std::int64_t run) const noexcept;
  void advance(Place& place, std::int64_t count) const noexcept;
  void run_pieces(std::int64_t begin, std::int64_t end) const noexcept;
  void run_short(std::int64_t begin, std::int64_t end) const noexcept;
  [[nodiscard]] TurnedTile tile_at(std::int64_t unit, std::int64_t edge) const noexcept;
  void run_tiles(std::int64_t begin, std::int64_t end) const noexcept;
  void run_squares(std::int64_t begin, std::int64_t end) const;
  void run_parts(std::int64_t begin, std::int64_t end) const noexcept;
  void copy_run(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept;

  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  std::array<Dim, kMaxDims> dims_{};  // outer to inner in the result
  int dim_count_ = 0;
  bool fits_ = true, streaming_ = false;
  Form form_ = Form::kRuns;
  std::size_t run_bytes_ = 0;   // what lies together: a run, or an item of a matrix
  std::size_t item_bytes_ = 0;  // of a run that comes backwards
  Dim rows_{}, columns_{};  // of the matrix: rows lie together in the result, columns in the source
  // What kNarrow and kTable cut into parts of some items of it; of kNarrow also the other
  // dimension.
  ElementSteps long_{1, 0, 0}, narrow_{1, 0, 0};
  std::int64_t part_ = 1;
  std::vector<std::int32_t> table_;  // of one item of long_, for all of a part
  // A unit is a tile, a part, or (a part of) a run.
  std::int64_t units_ = 0, units_per_block_ = 1, units_per_row_ = 1, units_per_matrix_ = 1;
  std::size_t bytes_ = 0, piece_bytes_ = 0;
};

}  // namespace loom::kernels
