// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// From a closed program to what is run: the body, without what nobody will see, and the operands'
// geometry in as few dimensions as possible. A plan depends on the program alone, not on timing or
// the number of cores.
// Thread: one; a plan is a workspace that is used again and again.

#include "loom/fusion/producer.h"
#include "loom/fusion/program.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::fusion {

/// How the kernel sees an operand.
enum class Reach : std::uint8_t {
  kDirect,   ///< in place: contiguous along a row, or one element a row
  kGathered  ///< through a contiguous copy of a tile
};

struct PlannedOperand {
  std::byte* data = nullptr;
  DType dtype = DType::kFloat;
  Reach reach = Reach::kDirect;
  bool uniform = false;
  Dims strides{};  ///< in bytes, one for each dimension of the plan
};

class Plan {
 public:
  /// Requires: `program` is closed. `columns`: how many a row should have, if not 0 and possible.
  void make(const Program& program, std::int64_t columns = 0);

  /// What is to be run; without outputs nothing is.
  [[nodiscard]] const Body& body() const noexcept { return body_; }
  [[nodiscard]] const std::vector<Param>& params() const noexcept { return params_; }
  [[nodiscard]] const std::vector<PlannedOperand>& inputs() const noexcept { return inputs_; }
  [[nodiscard]] const std::vector<PlannedOperand>& outputs() const noexcept { return outputs_; }

  /// The last dimensions, which make up a row's columns, are dims() - column_dim(): one, unless
  /// operands are gathered.
  [[nodiscard]] int dims() const noexcept { return dims_; }
  [[nodiscard]] int column_dim() const noexcept { return column_dim_; }
  [[nodiscard]] const Dims& sizes() const noexcept { return sizes_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t columns() const noexcept { return columns_; }
  /// True if all columns of a row must be seen by one run of the kernel.
  [[nodiscard]] bool whole_rows() const noexcept { return whole_rows_; }
  [[nodiscard]] bool gathers() const noexcept { return gathers_; }
  /// The work of one element, where an addition of floats is 1.
  [[nodiscard]] double cost() const noexcept { return cost_; }
  /// True if rows() and columns() are those of `matrix`, so that a rectangle of it can go through
  /// the kernel by itself. Requires: operands overlap with it completely or not at all.
  [[nodiscard]] bool walks(const Matrix& matrix) const noexcept;
  /// Lets the program read `matrix` where one of its outputs will be, if there is one that lies as
  /// it does and has its memory to itself; returns where the matrix has to be written. Requires:
  /// walks(matrix).
  [[nodiscard]] std::byte* move_to_output(const Matrix& matrix) noexcept;
  /// Bytes that the program moves between memory and registers.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void select(const Program& program);
  void add_operand(const Program& program, const Location& location, bool output);
  void order_dims(const Program& program, std::int64_t columns);
  void split_dim(int dim, std::int64_t columns);
  void merge_dims(int boundary);
  [[nodiscard]] bool mergeable(int d) const noexcept;
  void split_rows(const Program& program);
  void set_reach();
  void consider_streaming();
  /// Whether all rows of an output begin where cache lines do, or where those of another one do but
  /// for whole lines.
  [[nodiscard]] bool begins_lines(const PlannedOperand& output) const noexcept;
  [[nodiscard]] bool begins_as(const PlannedOperand& output,
                               const PlannedOperand& other) const noexcept;
  [[nodiscard]] bool overlap(const PlannedOperand& a, const PlannedOperand& b) const noexcept;
  [[nodiscard]] bool aliases_input(const PlannedOperand& output) const noexcept;

  Body body_;
  std::vector<Param> params_;
  std::vector<PlannedOperand> inputs_, outputs_;
  int dims_ = 0, column_dim_ = 0;
  Dims sizes_{};
  std::int64_t rows_ = 1, columns_ = 1;
  bool whole_rows_ = false, gathers_ = false;
  double cost_ = 0;
  std::uint64_t bytes_ = 0;
};

/// The cost of an operation on one element, where an addition of floats is 1.
[[nodiscard]] double cost_of(Op op) noexcept;

}  // namespace loom::fusion
