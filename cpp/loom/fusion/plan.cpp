// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace loom::fusion {
namespace {

// Rows shorter than this are not worth a loop of their own.
constexpr std::int64_t kShortRow = 16;

std::array<ValueId, 3> operands_of(const Instruction& i) noexcept { return {i.a, i.b, i.c}; }

/// What `op` rounds to, as a store to that dtype does by itself.
std::optional<DType> rounds_to(Op op) noexcept {
  switch (op) {
    case Op::kRoundHalf:
      return DType::kHalf;
    case Op::kRoundBFloat16:
      return DType::kBFloat16;
    default:
      return std::nullopt;
  }
}

/// The value that is stored, before it is rounded to the dtype of elements there.
ValueId before_rounding(const Program& program, const RecordedStore& store) noexcept {
  const Program::Value& value = program.values()[store.value];
  if (value.kind != Program::ValueKind::kResult || value.uniform) return store.value;
  const Instruction& instruction = program.instructions()[value.index];
  return rounds_to(instruction.op) == store.to.dtype ? instruction.a : store.value;
}

}  // namespace

double cost_of(Op op) noexcept {
  if (op >= Op::kExp && op <= Op::kLgamma) return op <= Op::kLog10 ? 5 : 9;
  switch (op) {
    case Op::kSqrt:
    case Op::kDiv:
    case Op::kReciprocal:
      return 2;
    case Op::kRsqrt:
      return 4;
    case Op::kPow:
    case Op::kAtan2:
    case Op::kHypot:
    case Op::kFmod:
      return 16;
    default:
      return 1;
  }
}

void Plan::make(const Program& program, std::int64_t columns) {
  select(program);
  bytes_ = 0;
  if (body_.outputs.empty()) return;
  order_dims(program, columns);
  split_rows(program);
  set_reach();
  // What comes in pieces of any size cannot be written in whole lines.
  if (columns == 0) consider_streaming();
}

// What a live output depends on, in the program's order.
void Plan::select(const Program& program) {
  const auto values = program.values();
  std::array<bool, Program::kMaxValues> needed{};
  for (const RecordedStore& store : program.stores()) {
    if (!store.dead) needed[before_rounding(program, store)] = true;
  }
  for (std::size_t v = values.size(); v-- > 0;) {
    if (!needed[v] || values[v].kind != Program::ValueKind::kResult) continue;
    const Instruction& i = program.instructions()[values[v].index];
    const auto operands = operands_of(i);
    for (int o = 0; o < operand_count(i.op); ++o) needed[operands[o]] = true;
  }
  body_.inputs.clear();
  body_.params.clear();
  body_.instructions.clear();
  body_.outputs.clear();
  body_.streaming = false;
  body_.aligned = true;
  params_.clear();
  inputs_.clear();
  outputs_.clear();
  cost_ = 0;
  std::array<ValueId, Program::kMaxValues> ids{};
  std::size_t next = 0;
  const auto each = [&](Program::ValueKind kind, auto&& visit) {
    for (std::size_t v = 0; v < values.size(); ++v) {
      if (!needed[v] || values[v].kind != kind) continue;
      visit(values[v]);
      ids[v] = static_cast<ValueId>(next++);
    }
  };
  each(Program::ValueKind::kLoad, [&](const Program::Value& value) {
    add_operand(program, program.loads()[value.index].from, /*output=*/false);
    body_.inputs.push_back({inputs_.back().dtype, value.uniform});
    inputs_.back().uniform = value.uniform;
  });
  each(Program::ValueKind::kParam, [&](const Program::Value& value) {
    body_.params.push_back(value.type);
    params_.push_back(program.params()[value.index]);
  });
  each(Program::ValueKind::kResult, [&](const Program::Value& value) {
    const Instruction& i = program.instructions()[value.index];
    const auto operands = operands_of(i);
    Instruction mapped{i.op, i.type, 0, 0, 0};
    ValueId* const to[] = {&mapped.a, &mapped.b, &mapped.c};
    for (int o = 0; o < operand_count(i.op); ++o) *to[o] = ids[operands[o]];
    body_.instructions.push_back(mapped);
    cost_ += cost_of(i.op);
  });
  for (const RecordedStore& store : program.stores()) {
    if (store.dead) continue;
    add_operand(program, store.to, /*output=*/true);
    const bool row = store.to.layout == Layout::kRow;
    outputs_.back().uniform = row;
    // Where nothing else reads the rounded value, the store's own rounding is enough.
    const ValueId value = needed[store.value] ? store.value : before_rounding(program, store);
    body_.outputs.push_back({ids[value], store.to.dtype, row});
  }
  cost_ += static_cast<double>(inputs_.size() + outputs_.size());
}

void Plan::add_operand(const Program& program, const Location& location, bool output) {
  const Space& space = program.space();
  PlannedOperand operand{.data = location.data, .dtype = location.dtype};
  const auto item = static_cast<std::int64_t>(size_of(location.dtype));
  std::int64_t row_stride = 1;
  for (int d = space.dims; d-- > 0;) {
    std::int64_t stride = 0;
    switch (location.layout) {
      case Layout::kFull:
        stride = space.strides[d];
        break;
      case Layout::kRow:
        if (d < space.row_dims()) {
          stride = row_stride;
          row_stride *= space.sizes[d];
        }
        break;
      case Layout::kOne:
        break;
      case Layout::kGeneral:
        stride = location.strides[d];
        break;
    }
    operand.strides[d] = stride * item;
  }
  (output ? outputs_ : inputs_).push_back(operand);
}

// Dimensions of size 1 are dropped and the others put in the order of the space's strides, so that
// the last one is the densest; reductions need the order that they have.
void Plan::order_dims(const Program& program, std::int64_t columns) {
  const Space& space = program.space();
  std::array<int, kMaxDims> order{};
  dims_ = 0;
  int boundary = 0;
  for (int d = 0; d < space.dims; ++d) {
    if (space.sizes[d] == 1) continue;
    if (d < space.row_dims()) ++boundary;
    order[dims_++] = d;
  }
  if (!space.contiguous) {
    std::stable_sort(order.begin(), order.begin() + dims_,
                     [&](int a, int b) { return space.strides[a] > space.strides[b]; });
  }
  for (int d = 0; d < dims_; ++d) sizes_[d] = space.sizes[order[d]];
  for (auto* operands : {&inputs_, &outputs_}) {
    for (PlannedOperand& operand : *operands) {
      Dims strides{};
      for (int d = 0; d < dims_; ++d) strides[d] = operand.strides[order[d]];
      operand.strides = strides;
    }
  }
  if (space.reduced_dims > 0) {
    column_dim_ = boundary;
    merge_dims(boundary);
    return;
  }
  boundary = dims_;
  for (std::int64_t inside = 1; boundary > 0 && inside < columns; inside *= sizes_[boundary]) {
    --boundary;
    // A recipe may have made one dimension of rows and columns that lie one after the other.
    const std::int64_t wanted = columns / inside;
    if (dims_ < kMaxDims && columns % inside == 0 && sizes_[boundary] > wanted &&
        sizes_[boundary] % wanted == 0) {
      split_dim(boundary++, wanted);
    }
  }
  column_dim_ = 0;
  merge_dims(columns > 0 ? boundary : -1);
}

// Makes two dimensions of one, the second one with `columns` elements.
void Plan::split_dim(int dim, std::int64_t columns) {
  const auto insert = [&](Dims& dims, std::int64_t value) {
    std::copy_backward(dims.begin() + dim + 1, dims.begin() + dims_, dims.begin() + dims_ + 1);
    dims[dim + 1] = value;
  };
  for (auto* operands : {&inputs_, &outputs_}) {
    for (PlannedOperand& operand : *operands) {
      insert(operand.strides, operand.strides[dim]);
      operand.strides[dim] *= columns;
    }
  }
  insert(sizes_, columns);
  sizes_[dim] /= columns;
  ++dims_;
}

bool Plan::mergeable(int d) const noexcept {
  const auto merges = [&](const PlannedOperand& operand) {
    return operand.strides[d] == operand.strides[d + 1] * sizes_[d + 1];
  };
  return std::all_of(inputs_.begin(), inputs_.end(), merges) &&
         std::all_of(outputs_.begin(), outputs_.end(), merges);
}

// Makes one dimension of neighbours that all operands walk through evenly, but not across
// `boundary`, where the columns begin.
void Plan::merge_dims(int boundary) {
  int kept = 0;
  for (int d = 1; d < dims_; ++d) {
    const bool crosses = d == boundary;
    // The kept dimension and d are neighbours now: compare them in place.
    sizes_[kept + 1] = sizes_[d];
    for (auto* operands : {&inputs_, &outputs_}) {
      for (PlannedOperand& operand : *operands) operand.strides[kept + 1] = operand.strides[d];
    }
    if (crosses || !mergeable(kept)) {
      ++kept;
      if (crosses) column_dim_ = kept;
      continue;
    }
    sizes_[kept] *= sizes_[kept + 1];
    for (auto* operands : {&inputs_, &outputs_}) {
      for (PlannedOperand& operand : *operands) operand.strides[kept] = operand.strides[kept + 1];
    }
  }
  const bool no_columns = boundary == dims_;
  if (dims_ > 0) dims_ = kept + 1;
  if (no_columns) column_dim_ = dims_;
}

void Plan::split_rows(const Program& program) {
  whole_rows_ = program.space().reduced_dims > 0;
  const std::int64_t numel = program.space().numel;
  if (whole_rows_) {
    columns_ = std::accumulate(sizes_.begin() + column_dim_, sizes_.begin() + dims_,
                               std::int64_t{1}, std::multiplies<>());
  } else {
    const bool short_rows = dims_ > 1 && sizes_[dims_ - 1] < kShortRow;
    // One row of everything: whoever does not lie so is gathered.
    column_dim_ = short_rows ? 0 : std::max(dims_ - 1, 0);
    columns_ = short_rows ? numel : dims_ == 0 ? 1 : sizes_[dims_ - 1];
  }
  rows_ = numel / columns_;
}

bool Plan::walks(const Matrix& matrix) const noexcept {
  if (whole_rows_ || gathers_ || rows_ != matrix.rows || columns_ != matrix.columns) return false;
  const auto in_order = [&](const PlannedOperand& operand) {
    if (operand.data != matrix.data) return true;
    auto expected = static_cast<std::int64_t>(size_of(matrix.dtype));
    for (int d = dims_; d-- > 0; expected *= sizes_[d]) {
      if (operand.strides[d] != expected) return false;
    }
    return true;
  };
  return std::all_of(inputs_.begin(), inputs_.end(), in_order) &&
         std::all_of(outputs_.begin(), outputs_.end(), in_order);
}

bool Plan::overlap(const PlannedOperand& a, const PlannedOperand& b) const noexcept {
  const auto span = [&](const PlannedOperand& operand) {
    const std::byte* begin = operand.data;
    const std::byte* end = operand.data + size_of(operand.dtype);
    for (int d = 0; d < dims_; ++d) {
      (operand.strides[d] < 0 ? begin : end) += operand.strides[d] * (sizes_[d] - 1);
    }
    return std::pair(begin, end);
  };
  const auto [begin, end] = span(a);
  const auto [other_begin, other_end] = span(b);
  return begin < other_end && other_begin < end;
}

std::byte* Plan::move_to_output(const Matrix& matrix) noexcept {
  const auto is_matrix = [&](const PlannedOperand& operand) { return operand.data == matrix.data; };
  const auto input = std::find_if(inputs_.begin(), inputs_.end(), is_matrix);
  // An output in its place brings the same lines into the cache.
  if (input == inputs_.end() || std::any_of(outputs_.begin(), outputs_.end(), is_matrix)) {
    return matrix.data;
  }
  for (const PlannedOperand& output : outputs_) {
    const bool alike =
        output.dtype == matrix.dtype &&
        std::equal(output.strides.begin(), output.strides.begin() + dims_, input->strides.begin());
    const bool alone = std::none_of(inputs_.begin(), inputs_.end(),
                                    [&](const auto& other) { return overlap(other, output); });
    if (alike && alone) return input->data = output.data;
  }
  return matrix.data;
}

void Plan::set_reach() {
  gathers_ = false;
  bytes_ = 0;
  for (auto* operands : {&inputs_, &outputs_}) {
    const bool output = operands == &outputs_;
    for (std::size_t i = 0; i < operands->size(); ++i) {
      PlannedOperand& operand = (*operands)[i];
      const auto item = static_cast<std::int64_t>(size_of(operand.dtype));
      bool flat = true, constant = true;
      std::int64_t expected = item;
      for (int d = dims_; d-- > column_dim_;) {
        flat = flat && operand.strides[d] == expected;
        constant = constant && operand.strides[d] == 0;
        expected *= sizes_[d];
      }
      std::int64_t elements = 1;
      for (int d = 0; d < dims_; ++d) elements *= operand.strides[d] == 0 ? 1 : sizes_[d];
      bytes_ += static_cast<std::uint64_t>(elements * item);
      if (operand.uniform) continue;
      if (!output && constant && columns_ > 1 && !whole_rows_) {
        operand.uniform = true;
        body_.inputs[i].uniform = true;
      } else if (!flat) {
        operand.reach = Reach::kGathered;
        gathers_ = true;
      }
    }
  }
}

}  // namespace loom::fusion
