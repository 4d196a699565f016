// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/executor.h"

#include "loom/base/ceil_div.h"
#include "loom/base/futex.h"
#include "loom/device/scratch.h"
#include "loom/fusion/gather.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

namespace loom::fusion {
namespace {

// A block of less work costs less than handing it to another core: about 10 us.
constexpr double kBlockCost = 32768;
// Enough to balance any machine that one device is likely to have.
constexpr std::int64_t kMaxBlocks = 256;
// Blocks of one row begin at whole cache lines of all types, and at whole lanes.
constexpr std::int64_t kColumnGrain = 1024;
// Tiles of gathered operands stay in the first-level cache.
constexpr std::int64_t kTileElements = 2048;
// Where an operand is dense down the columns, tiles are squares: what is read of a column and what
// is read of a row are a few whole cache lines each.
constexpr std::int64_t kSquare = 64;
// What a core's second-level cache does not hold.
constexpr std::int64_t kFarElements = std::int64_t{1} << 20;
constexpr std::int64_t kPage = 4096;
constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return round_up(bytes, kAlignment); }

const Scratch kBlockScratch;

/// How rows and columns are cut.
struct Cut {
  std::int64_t rows, columns;  ///< of a block
  std::int64_t row_blocks, column_blocks;
};

/// Whether an operand is dense down the columns.
bool has_columns(const Plan& plan) {
  const auto down = [&](const PlannedOperand& operand) {
    const int d = plan.column_dim();
    return operand.reach == Reach::kGathered && plan.dims() == d + 1 && d > 0 &&
           std::abs(operand.strides[d - 1]) < std::abs(operand.strides[d]);
  };
  return std::any_of(plan.inputs().begin(), plan.inputs().end(), down) ||
         std::any_of(plan.outputs().begin(), plan.outputs().end(), down);
}

// Whole squares of columns, but not so few blocks that cores stay idle.
void cut_squares(const Plan& plan, Cut& cut) {
  constexpr std::int64_t kFewBlocks = 16;
  const std::int64_t rows = round_up(cut.rows, kSquare);
  const std::int64_t blocks = ceil_div(plan.rows(), rows);
  const bool few = blocks < std::min(kFewBlocks, cut.row_blocks);
  if (few && plan.whole_rows()) return;
  cut.rows = rows;
  cut.row_blocks = blocks;
  if (!few) return;
  const std::int64_t wanted = ceil_div(kFewBlocks, blocks);
  cut.columns = ceil_div(ceil_div(plan.columns(), wanted), kColumnGrain) * kColumnGrain;
  cut.column_blocks = ceil_div(plan.columns(), cut.columns);
}

// `all`: elements of all plans of the grid.
Cut cut_plan(const Plan& plan, std::int64_t all) {
  const double cost = std::max(plan.cost(), 1.0);
  const auto least = static_cast<std::int64_t>(std::ceil(kBlockCost / cost));
  const std::int64_t length = std::max(least, ceil_div(all, kMaxBlocks));
  Cut cut{1, plan.columns(), plan.rows(), 1};
  if (plan.whole_rows() || plan.columns() <= length) {
    cut.rows = std::min(plan.rows(), std::max<std::int64_t>(length / plan.columns(), 1));
    cut.row_blocks = ceil_div(plan.rows(), cut.rows);
    cut.rows = ceil_div(plan.rows(), cut.row_blocks);  // of about the same length
    if (plan.gathers() && has_columns(plan)) cut_squares(plan, cut);
    return cut;
  }
  cut.column_blocks = ceil_div(plan.columns(), length);
  cut.columns = ceil_div(ceil_div(plan.columns(), cut.column_blocks), kColumnGrain) * kColumnGrain;
  cut.column_blocks = ceil_div(plan.columns(), cut.columns);
  return cut;
}

/// One plan's part of a grid.
struct Piece {
  Cut cut;
  std::int64_t end;  ///< of its blocks, counted over all plans
};

class Block {
 public:
  Block(const Plan& plan, const Kernel& kernel) : plan_(plan), kernel_(kernel) {}

  // An output that takes an input's place is in the cache when the input is.
  void prefetch_outputs(std::int64_t row, std::int64_t rows, std::int64_t column,
                        std::int64_t columns) const noexcept {
    for (const PlannedOperand& output : plan_.outputs()) {
      const bool replaces =
          std::any_of(plan_.inputs().begin(), plan_.inputs().end(),
                      [&](const PlannedOperand& input) { return input.data == output.data; });
      if (!replaces) prefetch_rows(output, row, rows, column, columns);
    }
  }

  void run(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    std::int64_t tile_columns = columns, tile_rows = rows;
    if (plan_.gathers()) {
      const bool square = has_columns(plan_);
      const std::int64_t elements = square ? kSquare * kSquare : kTileElements;
      if (!plan_.whole_rows()) tile_columns = std::min(columns, square ? kSquare : elements);
      tile_rows = std::max<std::int64_t>(elements / tile_columns, 1);
    }
    reserve(tile_rows, tile_columns);
    const bool is_far = plan_.gathers() && plan_.rows() * plan_.columns() >= kFarElements;
    while (rows > 0) {
      // Rows of one run of the last row dimension are evenly spaced.
      const std::int64_t run = std::min({rows, run_length(row), tile_rows});
      for (std::int64_t done = 0; done < columns; done += tile_columns) {
        const std::int64_t next = done + tile_columns;
        if (next < columns && is_far) {
          prefetch_columns(row, run, column + next, std::min(tile_columns, columns - next));
        }
        run_tile(row, run, column + done, std::min(tile_columns, columns - done));
      }
      row += run;
      rows -= run;
    }
  }

 private:
  // What lies down the columns is a few lines of each, which the processor does not foresee.
  void prefetch_columns(std::int64_t row, std::int64_t rows, std::int64_t column,
                        std::int64_t columns) const noexcept {
    constexpr std::int64_t kCacheLine = 64;
    for (const PlannedOperand& operand : plan_.inputs()) {
      if (operand.reach != Reach::kGathered) continue;
      const Gather tile = gather(operand, row, rows, column, columns);
      if (!walks_down(tile) || tile.row_stride != static_cast<std::int64_t>(tile.item)) continue;
      // Columns whole pages apart meet in few sets of the cache.
      if (tile.strides[0] % kPage == 0) continue;
      const std::byte* from = tile.data + column * tile.strides[0];
      for (std::int64_t c = 0; c < columns; ++c, from += tile.strides[0]) {
        for (std::int64_t b = 0; b < rows * tile.row_stride; b += kCacheLine) {
          __builtin_prefetch(from + b);
        }
      }
    }
  }

  void prefetch_rows(const PlannedOperand& output, std::int64_t row, std::int64_t rows,
                     std::int64_t column, std::int64_t columns) const noexcept {
    constexpr std::int64_t kCacheLine = 64;
    const auto item = static_cast<std::int64_t>(size_of(output.dtype));
    while (rows > 0) {
      const std::int64_t run = std::min(rows, run_length(row)), stride = row_stride(output);
      const std::byte* start = row_start(output, row) + column * item;
      for (std::int64_t r = 0; r < run; ++r, start += stride) {
        for (std::int64_t b = 0; b < columns * item; b += kCacheLine) {
          __builtin_prefetch(start + b, 1);
        }
      }
      row += run;
      rows -= run;
    }
  }

  [[nodiscard]] std::int64_t run_length(std::int64_t row) const {
    const int d = plan_.column_dim() - 1;
    return d < 0 ? 1 : plan_.sizes()[d] - row % plan_.sizes()[d];
  }
  [[nodiscard]] std::int64_t row_stride(const PlannedOperand& operand) const {
    const int d = plan_.column_dim() - 1;
    return d < 0 ? 0 : operand.strides[d];
  }
  [[nodiscard]] std::byte* row_start(const PlannedOperand& operand, std::int64_t row) const {
    std::byte* data = operand.data;
    for (int d = plan_.column_dim(); d-- > 0;) {
      data += row % plan_.sizes()[d] * operand.strides[d];
      row /= plan_.sizes()[d];
    }
    return data;
  }
  [[nodiscard]] Gather gather(const PlannedOperand& operand, std::int64_t row, std::int64_t rows,
                              std::int64_t column, std::int64_t columns) const {
    return {.data = row_start(operand, row),
            .row_stride = row_stride(operand),
            .rows = rows,
            .sizes = plan_.sizes().data() + plan_.column_dim(),
            .strides = operand.strides.data() + plan_.column_dim(),
            .dims = plan_.dims() - plan_.column_dim(),
            .column = column,
            .columns = columns,
            .item = size_of(operand.dtype)};
  }

  void reserve(std::int64_t rows, std::int64_t columns) {
    const std::size_t kernel_bytes = aligned(kernel_.scratch_bytes(columns));
    std::size_t bytes = kernel_bytes;
    const auto elements = static_cast<std::size_t>(rows * columns);
    const auto add = [&](const std::vector<PlannedOperand>& operands, auto& offsets) {
      for (std::size_t i = 0; i < operands.size(); ++i) {
        if (operands[i].reach != Reach::kGathered) continue;
        offsets[i] = bytes;
        bytes += aligned(elements * size_of(operands[i].dtype));
      }
    };
    add(plan_.inputs(), input_offsets_);
    add(plan_.outputs(), output_offsets_);
    scratch_ = static_cast<std::byte*>(kBlockScratch.reserve(std::max(aligned(bytes), kAlignment)));
  }

  Place place(const PlannedOperand& operand, std::size_t offset, std::int64_t row,
              std::int64_t column, std::int64_t columns) const {
    const auto item = static_cast<std::int64_t>(size_of(operand.dtype));
    if (operand.reach == Reach::kGathered) return {scratch_ + offset, columns * item};
    std::byte* data = row_start(operand, row);
    if (!operand.uniform) data += column * item;
    return {data, row_stride(operand)};
  }

  void run_tile(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    std::array<Place, Body::kMaxInputs> inputs;
    std::array<Place, Body::kMaxOutputs> outputs;
    for (std::size_t i = 0; i < plan_.inputs().size(); ++i) {
      const PlannedOperand& operand = plan_.inputs()[i];
      inputs[i] = place(operand, input_offsets_[i], row, column, columns);
      if (operand.reach == Reach::kGathered) {
        gather_elements(gather(operand, row, rows, column, columns), inputs[i].data);
      }
    }
    for (std::size_t i = 0; i < plan_.outputs().size(); ++i) {
      outputs[i] = place(plan_.outputs()[i], output_offsets_[i], row, column, columns);
    }
    kernel_.run({.rows = rows,
                 .columns = columns,
                 .inputs = inputs.data(),
                 .outputs = outputs.data(),
                 .params = plan_.params().data(),
                 .scratch = scratch_});
    for (std::size_t i = 0; i < plan_.outputs().size(); ++i) {
      const PlannedOperand& operand = plan_.outputs()[i];
      if (operand.reach != Reach::kGathered) continue;
      scatter_elements(gather(operand, row, rows, column, columns), outputs[i].data);
    }
  }

  const Plan& plan_;
  const Kernel& kernel_;
  std::byte* scratch_ = nullptr;
  std::array<std::size_t, Body::kMaxInputs> input_offsets_{};
  std::array<std::size_t, Body::kMaxOutputs> output_offsets_{};
};

}  // namespace

void execute(std::span<const Work> works, Cores& cores, int priority) {
  thread_local std::vector<Piece> t_pieces;
  std::vector<Piece>& pieces = t_pieces;
  pieces.clear();
  std::int64_t blocks = 0;
  std::int64_t all = 0;
  for (const Work& work : works) all += work.plan->rows() * work.plan->columns();
  for (const Work& work : works) {
    const Cut cut = cut_plan(*work.plan, all);
    blocks += cut.row_blocks * cut.column_blocks;
    pieces.push_back({cut, blocks});
  }
  cores.run(
      blocks,
      [&](std::int64_t index) {
        const auto piece =
            std::upper_bound(pieces.begin(), pieces.end(), index,
                             [](std::int64_t value, const Piece& p) { return value < p.end; });
        const Work& work = works[static_cast<std::size_t>(piece - pieces.begin())];
        const Cut& cut = piece->cut;
        const std::int64_t block = index - (piece->end - cut.row_blocks * cut.column_blocks);
        const std::int64_t row = block / cut.column_blocks * cut.rows;
        const std::int64_t column = block % cut.column_blocks * cut.columns;
        Block(*work.plan, *work.kernel)
            .run(row, std::min(cut.rows, work.plan->rows() - row), column,
                 std::min(cut.columns, work.plan->columns() - column));
      },
      priority, RunBy::kAny);
}

void WorkEpilogue::run(std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns) const {
  const std::int64_t start = now_ns();
  Block(*work_.plan, *work_.kernel).run(row, rows, column, columns);
  nanoseconds_.fetch_add(now_ns() - start, std::memory_order_relaxed);
}

void WorkEpilogue::prefetch(std::int64_t row, std::int64_t rows, std::int64_t column,
                            std::int64_t columns) const noexcept {
  Block(*work_.plan, *work_.kernel).prefetch_outputs(row, rows, column, columns);
}

}  // namespace loom::fusion
