// SPDX-License-Identifier: BSD-3-Clause
#include "loom/kernels/copy/strided_copy.h"

#include "loom/base/ceil_div.h"
#include "loom/kernels/copy/copy_bytes.h"
#include "loom/kernels/copy/transpose_tile.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace loom::kernels {
namespace {

// What a core copies in some 20 us.
constexpr std::size_t kBlockBytes = std::size_t{256} << 10;
// Past the caches from here on: until then some of what is written, or was read, is in them the
// next time (16 MiB, 32 with what is read, of 32 MiB of L3: 410 us and not 570; from 32 MiB on the
// same).
constexpr std::size_t kStreamingRunsBytes = std::size_t{64} << 20;
// A transposition's stores meet in few sets of the caches, where they are slower than past them.
constexpr std::size_t kStreamingTurnedBytes = std::size_t{4} << 20;
// Where tiles share lines it takes another pass through L2, which pays from here on.
constexpr std::size_t kSquaresBytes = std::size_t{16} << 20;
constexpr std::size_t kLine = 64;
// Shorter runs are copied if there are some after another; else ATen copies them.
constexpr std::size_t kShortestRun = 16;
constexpr std::int64_t kSomeRuns = 16;
// Elements of a table: the table and what it moves stay in the first-level cache.
constexpr std::int64_t kTable = 256;
// Below this the calls for parts take longer than the elements.
constexpr std::int64_t kSmallestTable = 8;
// Loops of this many elements are worth their beginning and their end.
constexpr std::int64_t kLongLoop = 16;
// Matrices of less rows or columns have none of the squares that tiles are turned in.
constexpr std::int64_t kNarrow = 8;
// What is read or written bit by bit stays in the first-level cache until it is complete.
constexpr std::int64_t kNarrowBytes = 16 << 10;
// From here on a run is streamed by itself, wherever its lines begin.
constexpr std::size_t kLongRun = 4096;

// Runs of up to so many bytes are copied here: calls of memcpy took a tenth of the time (256 bytes
// each, in L3).
constexpr std::size_t kShortRun = 1024;

[[nodiscard]] bool on_lines(const std::byte* address, std::ptrdiff_t stride) noexcept {
  return reinterpret_cast<std::uintptr_t>(address) % kLine == 0 &&
         stride % static_cast<std::ptrdiff_t>(kLine) == 0;
}

}  // namespace

std::optional<StridedCopy> StridedCopy::between(const TensorView& to, const TensorView& from,
                                                std::size_t total_bytes) {
  std::optional<StridedCopy> made(std::in_place);
  StridedCopy& copy = *made;
  copy.to_ = to.data;
  copy.from_ = from.data;
  copy.run_bytes_ = to.item_bytes;
  copy.add_dims(to, from);
  if (!copy.fits_ || !copy.choose_form()) return std::nullopt;
  copy.cut(total_bytes);
  return made;
}

void StridedCopy::add_dims(const TensorView& to, const TensorView& from) {
  const auto item = static_cast<std::ptrdiff_t>(run_bytes_);
  for (std::size_t d = 0; d < to.sizes.size(); ++d) {
    if (to.sizes[d] == 1) continue;
    if (dim_count_ == kMaxDims) {
      fits_ = false;
      return;
    }
    dims_[dim_count_++] = {to.sizes[d], to.strides[d] * item, from.strides[d] * item};
  }
  const auto end = dims_.begin() + dim_count_;
  std::stable_sort(dims_.begin(), end, [](const Dim& a, const Dim& b) { return a.to > b.to; });
  // Neighbours that lie together in both become one.
  int last = 0;
  for (int d = 1; d < dim_count_; ++d) {
    Dim& outer = dims_[last];
    const Dim& inner = dims_[d];
    if (outer.to == inner.to * inner.size && outer.from == inner.from * inner.size) {
      outer = {outer.size * inner.size, inner.to, inner.from};
    } else {
      dims_[++last] = inner;
    }
  }
  dim_count_ = dim_count_ == 0 ? 0 : last + 1;
}

bool StridedCopy::choose_form() {
  if (dim_count_ > 0) {
    const Dim& inner = dims_[dim_count_ - 1];
    const auto item = static_cast<std::ptrdiff_t>(run_bytes_);
    if (inner.to == item && inner.from == item) {
      run_bytes_ *= static_cast<std::size_t>(inner.size);
      --dim_count_;
    }
  }
  if (choose_reversed() || choose_table() || choose_turned()) return true;
  if (run_bytes_ >= kShortestRun || dim_count_ == 0) return true;
  // What is broadcast ATen reads once.
  const Dim& inner = dims_[dim_count_ - 1];
  return inner.size >= kSomeRuns && inner.from != 0;
}

bool StridedCopy::choose_reversed() {
  if (!is_element(run_bytes_) || dim_count_ == 0) return false;
  const Dim& inner = dims_[dim_count_ - 1];
  const auto item = static_cast<std::ptrdiff_t>(run_bytes_);
  if (inner.to != item || inner.from != -item || inner.size < kLongLoop) return false;
  form_ = Form::kReversed;
  item_bytes_ = run_bytes_;
  run_bytes_ *= static_cast<std::size_t>(inner.size);
  --dim_count_;
  return true;
}

// The innermost dimensions are dense in the result, short, and somehow else in the source.
bool StridedCopy::choose_table() {
  if (!is_element(run_bytes_) || dim_count_ == 0 || dims_[dim_count_ - 1].size >= kLongLoop) {
    return false;
  }
  const auto item = static_cast<std::ptrdiff_t>(run_bytes_);
  std::int64_t count = 1;
  int first = dim_count_;
  const auto is_dense = [&](int d) { return d >= 0 && dims_[d].to == item * count; };
  while (is_dense(first - 1) && count * dims_[first - 1].size <= kTable) {
    count *= dims_[--first].size;
  }
  if (first == dim_count_) return false;
  const bool more = is_dense(first - 1);
  // A long narrow matrix.
  if (more && first == dim_count_ - 1 && dims_[first - 1].from == item) return false;
  const std::int64_t part = more ? std::max<std::int64_t>(kTable / count, 1) : 1;
  if (count * part < kSmallestTable) return false;
  if (more) long_ = {dims_[first - 1].size, dims_[first - 1].to, dims_[first - 1].from};
  part_ = part;
  const auto reach = [&](std::int64_t size, std::ptrdiff_t step) { return size * std::abs(step); };
  std::int64_t span = reach(part_, long_.from);
  for (int d = first; d < dim_count_; ++d) span += reach(dims_[d].size, dims_[d].from);
  if (span > std::numeric_limits<std::int32_t>::max()) return false;
  fill_table(first);
  dim_count_ = more ? first - 1 : first;
  form_ = Form::kTable;
  return true;
}

void StridedCopy::fill_table(int first) {
  table_ = {0};
  const auto repeat = [&](std::int64_t count, std::ptrdiff_t step) {
    const std::size_t inner = table_.size();
    for (std::int64_t i = 1; i < count; ++i) {
      for (std::size_t k = 0; k < inner; ++k) {
        table_.push_back(table_[k] + static_cast<std::int32_t>(i * step));
      }
    }
  };
  for (int d = dim_count_ - 1; d >= first; --d) repeat(dims_[d].size, dims_[d].from);
  repeat(part_, long_.from);
}

// The innermost dimension is dense in the result, another one in the source.
bool StridedCopy::choose_turned() {
  const auto item = static_cast<std::ptrdiff_t>(run_bytes_);
  if (!can_turn(run_bytes_) || dim_count_ < 2 || dims_[dim_count_ - 1].to != item) return false;
  for (int d = 0; d < dim_count_ - 1; ++d) {
    if (dims_[d].from != item) continue;
    rows_ = dims_[dim_count_ - 1];
    columns_ = dims_[d];
    std::copy(dims_.begin() + d + 1, dims_.begin() + dim_count_ - 1, dims_.begin() + d);
    dim_count_ -= 2;
    form_ = Form::kTiles;
    if (is_element(run_bytes_) && std::min(rows_.size, columns_.size) < kNarrow) {
      form_ = Form::kNarrow;
      long_ = {columns_.size, columns_.to, columns_.from};
      narrow_ = {rows_.size, rows_.to, rows_.from};
      if (columns_.size < rows_.size) std::swap(long_, narrow_);
      part_ = std::max<std::int64_t>(kNarrowBytes / (narrow_.count * item), kLongLoop);
    }
    return true;
  }
  return false;
}

std::int64_t StridedCopy::outer() const noexcept {
  std::int64_t outer = 1;
  for (int d = 0; d < dim_count_; ++d) outer *= dims_[d].size;
  return outer;
}

// Returns the bytes of a unit, as the others.
std::size_t StridedCopy::cut_runs() {
  units_per_row_ = units_per_matrix_ = ceil_div(static_cast<std::int64_t>(run_bytes_), kBlockBytes);
  piece_bytes_ = static_cast<std::size_t>(ceil_div(
      static_cast<std::int64_t>(run_bytes_), units_per_row_ * static_cast<std::int64_t>(kLine)));
  piece_bytes_ *= kLine;
  bytes_ = static_cast<std::size_t>(outer()) * run_bytes_;
  return std::min(piece_bytes_, run_bytes_);
}

std::size_t StridedCopy::cut_tiles(std::size_t total_bytes) {
  streaming_ = total_bytes >= kStreamingTurnedBytes && on_lines(to_, columns_.to);
  for (int d = 0; streaming_ && d < dim_count_; ++d) streaming_ = on_lines(nullptr, dims_[d].to);
  std::int64_t edge = tile_edge(run_bytes_);
  if (!streaming_ && total_bytes >= kSquaresBytes && rows_.size >= kSquareTiles * edge) {
    form_ = Form::kSquares;
    streaming_ = true;
    edge *= kSquareTiles;
  }
  units_per_row_ = ceil_div(columns_.size, edge);
  units_per_matrix_ = units_per_row_ * ceil_div(rows_.size, edge);
  bytes_ = static_cast<std::size_t>(outer() * rows_.size * columns_.size) * run_bytes_;
  return static_cast<std::size_t>(std::min(columns_.size, edge) * std::min(rows_.size, edge)) *
         run_bytes_;
}

void StridedCopy::cut(std::size_t total_bytes) {
  std::size_t unit_bytes = 0;
  if (form_ == Form::kTiles) {  // or squares of them
    unit_bytes = cut_tiles(total_bytes);
  } else if (form_ == Form::kRuns || form_ == Form::kReversed) {
    unit_bytes = cut_runs();
    streaming_ = form_ == Form::kRuns && total_bytes >= kStreamingRunsBytes;
  } else {
    const std::int64_t items =
        form_ == Form::kNarrow ? narrow_.count : static_cast<std::int64_t>(table_.size()) / part_;
    units_per_row_ = units_per_matrix_ = ceil_div(long_.count, part_);
    unit_bytes = static_cast<std::size_t>(std::min(part_, long_.count) * items) * run_bytes_;
    bytes_ = static_cast<std::size_t>(outer() * long_.count * items) * run_bytes_;
  }
  units_ = outer() * units_per_matrix_;
  units_per_block_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(kBlockBytes / unit_bytes));
}

void StridedCopy::run(std::int64_t block) const {
  const std::int64_t begin = block * units_per_block_;
  const std::int64_t end = std::min(units_, begin + units_per_block_);
  if (form_ == Form::kTiles) {
    run_tiles(begin, end);
  } else if (form_ == Form::kSquares) {
    run_squares(begin, end);
  } else if (form_ == Form::kNarrow || form_ == Form::kTable) {
    run_parts(begin, end);
  } else if (form_ == Form::kRuns && !streaming_ && dim_count_ > 0 && run_bytes_ <= kShortRun) {
    run_short(begin, end);
  } else {
    run_pieces(begin, end);
  }
  if (streaming_) end_streaming();
}

void StridedCopy::copy_run(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
  if (!streaming_ || bytes < kLine) {
    std::memcpy(to, from, bytes);
  } else if (bytes >= kLongRun) {
    copy_bytes(to, from, bytes, /*streaming=*/true);
  } else {
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
    const std::size_t lines = (bytes - head) / kLine * kLine;
    std::memcpy(to, from, head);
    stream_lines(to + head, from + head, lines);
    std::memcpy(to + head + lines, from + head + lines, bytes - head - lines);
  }
}

StridedCopy::Place StridedCopy::place_of(std::int64_t run) const noexcept {
  Place place{{}, to_, from_};
  for (int d = dim_count_ - 1; d >= 0; --d) {
    place.index[d] = run % dims_[d].size;
    run /= dims_[d].size;
    place.to += place.index[d] * dims_[d].to;
    place.from += place.index[d] * dims_[d].from;
  }
  return place;
}

// `count` runs further, all of which are in the innermost dimension.
void StridedCopy::advance(Place& place, std::int64_t count) const noexcept {
  for (int d = dim_count_ - 1; d >= 0; --d, count = 1) {
    place.to += count * dims_[d].to;
    place.from += count * dims_[d].from;
    place.index[d] += count;
    if (place.index[d] < dims_[d].size) return;
    place.to -= dims_[d].size * dims_[d].to;
    place.from -= dims_[d].size * dims_[d].from;
    place.index[d] = 0;
  }
}

void StridedCopy::run_pieces(std::int64_t begin, std::int64_t end) const noexcept {
  Place place = place_of(begin / units_per_row_);
  std::int64_t piece = begin % units_per_row_;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::size_t offset = static_cast<std::size_t>(piece) * piece_bytes_;
    if (offset < run_bytes_) {
      const std::size_t bytes = std::min(piece_bytes_, run_bytes_ - offset);
      if (form_ == Form::kReversed) {
        copy_reversed(place.to + offset, place.from - offset,
                      static_cast<std::int64_t>(bytes / item_bytes_), item_bytes_);
      } else {
        copy_run(place.to + offset, place.from + offset, bytes);
      }
    }
    if (++piece < units_per_row_) continue;
    piece = 0;
    advance(place, 1);
  }
}

void StridedCopy::run_short(std::int64_t begin, std::int64_t end) const noexcept {
  Place place = place_of(begin);
  const Dim& inner = dims_[dim_count_ - 1];
  for (std::int64_t run = begin; run < end;) {
    const std::int64_t count = std::min(inner.size - place.index[dim_count_ - 1], end - run);
    if (run_bytes_ < kLine) {
      copy_tiny_runs(place.to, place.from, {count, inner.to, inner.from}, run_bytes_);
    } else {
      copy_short_runs(place.to, place.from, {count, inner.to, inner.from}, run_bytes_);
    }
    run += count;
    advance(place, count);
  }
}

void StridedCopy::run_parts(std::int64_t begin, std::int64_t end) const noexcept {
  Place place = place_of(begin / units_per_row_);
  std::int64_t part = begin % units_per_row_;
  const auto inner = static_cast<std::int64_t>(table_.size()) / part_;
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::int64_t first = part * part_, count = std::min(part_, long_.count - first);
    std::byte* const to = place.to + first * long_.to;
    const std::byte* const from = place.from + first * long_.from;
    if (form_ == Form::kTable) {
      copy_by_table(to, from, table_.data(), count * inner, run_bytes_);
    } else {
      copy_matrix(to, from, narrow_, {count, long_.to, long_.from}, run_bytes_);
    }
    if (++part < units_per_row_) continue;
    part = 0;
    advance(place, 1);
  }
}

}  // namespace loom::kernels
