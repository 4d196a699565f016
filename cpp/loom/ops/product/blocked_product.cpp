// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/product/blocked_product.h"

#include "loom/ops/launch_open.h"
#include "loom/ops/product/bfloat16.h"
#include "loom/ops/product/multiply.h"
#include "loom/ops/product/product_blocks.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

#include <algorithm>
#include <utility>

namespace loom::ops {
namespace {

using c10::BFloat16;
using detail::Block;
using detail::block_of;
using detail::broadcast;
using detail::Operand;
using detail::operand;
using detail::parts;
using detail::Problem;

// Below this calling the block kernel is no faster than calling MKL.
constexpr double kLeastProduct = 16 * 16 * 16;
// Left operands with few rows become the right one, so that the other need not be packed.
constexpr std::int64_t kFewRows = 64;
// A left operand of up to so many elements is transposed once, in pieces of so many inner ones.
constexpr std::int64_t kMaxTurned = 4 << 20;
constexpr std::int64_t kTurnedAtOnce = 128;
// A right operand of so many elements is packed once, in pieces of so many and the way it lies. Of
// fewer that is not worth the wait of the cores for each other in between.
constexpr std::int64_t kMaxPacked = 8 << 20;
constexpr std::int64_t kLeastPacked = 1 << 16;
constexpr std::int64_t kPackedAtOnce = 64 << 10;

const Scratch t_accumulators, t_turned, t_left_of_all, t_right_of_all;

template <class T>
at::Tensor alias(const MatrixView<T>& view) {
  const std::int64_t sizes[] = {view.rows, view.columns};
  const std::int64_t strides[] = {view.row_stride, view.column_stride};
  return make_alias(
      {.data = reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(view.data)),
       .sizes = sizes,
       .strides = strides,
       .dtype = c10::CppTypeToScalarType<std::remove_const_t<T>>::value});
}

/// A row that is added to all rows.
template <class T>
bool is_bias(const MatrixView<const T>& addend, double beta) {
  return addend.row_stride == 0 && addend.column_stride == 1 && beta == 1;
}

/// The same of the transposed product: a column that is added to all columns.
template <class T>
bool is_turned_bias(const MatrixView<const T>& addend, double beta) {
  return addend.column_stride == 0 && beta == 1;
}

// Puts beta * addend where the product will be added.
template <class T>
void initialise(const MatrixView<const T>& addend, double beta, float* to, std::int64_t ld) {
  if (is_bias(addend, beta)) {
    std::copy_n(addend.data, addend.columns, to);
    for (std::int64_t i = 1; i < addend.rows; ++i) std::copy_n(to, addend.columns, to + i * ld);
    return;
  }
  if (is_turned_bias(addend, beta)) {
    for (std::int64_t i = 0; i < addend.rows; ++i) {
      const auto value = static_cast<float>(addend.data[i * addend.row_stride]);
      std::fill_n(to + i * ld, addend.columns, value);
    }
    return;
  }
  const at::Tensor sum = alias(MatrixView<float>{to, addend.rows, addend.columns, ld, 1});
  sum.copy_(alias(addend));
  if (beta != 1) sum.mul_(beta);
}

// Puts accumulators where the result is.
template <class T>
void store(const float* from, const MatrixView<T>& result) {
  if (!result.row_major()) {
    const MatrixView<T> turned = result.transposed();
    if constexpr (std::is_same_v<T, float>) {
      transpose(result.rows, result.columns, from, result.columns, turned.data, turned.row_stride);
    } else {
      float* other = t_turned.get<float>(result.rows * result.columns);
      transpose(result.rows, result.columns, from, result.columns, other, result.rows);
      store(other, turned);
    }
    return;
  }
  if constexpr (std::is_same_v<T, BFloat16>) {
    for (std::int64_t i = 0; i < result.rows; ++i) {
      store_sums(from + i * result.columns, nullptr, result.columns,
                 result.data + i * result.row_stride);
    }
  }
}

void activate(const at::Tensor& result, ProductActivation activation) {
  if (activation == ProductActivation::kRelu) at::relu_(const_cast<at::Tensor&>(result));
  if (activation == ProductActivation::kGelu) at::gelu_(const_cast<at::Tensor&>(result));
}

/// A block of the result and what it is made of.
template <class T>
struct Part {
  MatrixView<T> result;
  MatrixView<const T> addend, left, right;
  double beta;
  bool continues = false;            ///< the result has a sum in it that this is added to
  const T* panels = nullptr;         ///< of the right operand, if they have been made
  std::int64_t row = 0, column = 0;  ///< where it begins in the whole result

  [[nodiscard]] bool added() const noexcept { return addend.data != nullptr && beta != 0; }
  [[nodiscard]] Part cut(std::int64_t row, std::int64_t column, std::int64_t rows,
                         std::int64_t columns) const {
    return {result.part(row, column, rows, columns),
            addend.part(row, column, rows, columns),
            left.part(row, 0, rows, left.columns),
            right.part(0, column, right.rows, columns),
            beta,
            continues,
            panels == nullptr ? nullptr : panels + column / kPanel * panel_step<T>(right.rows),
            this->row + row,
            this->column + column};
  }
};

/// What becomes of parts that are computed.
template <class T>
struct Finish {
  const Grid& grid;
  ProductActivation activation;
  bool turned;  ///< it is the transposed product
  bool alone;   ///< there is no other product whose parts have the same rows and columns

  void operator()(const Part<T>& p) const {
    if (activation != ProductActivation::kNone) activate(alias(p.result), activation);
    visit(p, [&](auto... rectangle) { grid.finish(rectangle...); });
  }
  /// Before it is computed: what will be written then should be in the cache.
  void prefetch(const Part<T>& p) const {
    visit(p, [&](auto... rectangle) { grid.prefetch(rectangle...); });
  }

 private:
  template <class Visit>
  void visit(const Part<T>& p, Visit&& visit) const {
    const std::int64_t rows = p.result.rows, columns = p.result.columns;
    if (!alone) return;
    turned ? visit(p.column, columns, p.row, rows) : visit(p.row, rows, p.column, columns);
  }
};

// The result is float32 and row-major: it is summed where it is.
void run_in_place(const Part<float>& p) {
  if (p.added()) initialise(p.addend, p.beta, p.result.data, p.result.row_stride);
  multiply(p.left, p.right, p.result.data, p.result.row_stride, p.added() || p.continues);
}

// What will be stored, so that it is in the cache by then.
void prefetch(const MatrixView<BFloat16>& result) {
  for (std::int64_t i = 0; i < result.rows; ++i) {
    const BFloat16* row = result.data + i * result.row_stride;
    for (std::int64_t j = 0; j < result.columns; j += 32) __builtin_prefetch(row + j, 1);
  }
}

// A panel's sums are rounded while they are in L1.
void run_tile(const Part<BFloat16>& whole, const PackedRight<BFloat16>& packed,
              const Finish<BFloat16>& finish) {
  const MatrixView<const BFloat16> left = dense_rows(whole.left);
  float* to = t_accumulators.get<float>(kTileRows * kPanel);
  const bool bias = whole.added() && is_bias(whole.addend, whole.beta);
  for (std::int64_t column = 0; column < whole.result.columns; column += kPanel) {
    const std::int64_t columns = std::min(kPanel, whole.result.columns - column);
    const Part<BFloat16> p = whole.cut(0, column, whole.result.rows, columns);
    const bool add = p.added() && !bias;
    if (add) initialise(p.addend, p.beta, to, kPanel);
    prefetch(p.result);
    finish.prefetch(p);
    packed.multiply_panel(left, column, to, kPanel, add);
    for (std::int64_t i = 0; i < p.result.rows; ++i) {
      store_sums(to + i * kPanel, bias ? p.addend.data : nullptr, columns,
                 p.result.data + i * p.result.row_stride);
    }
  }
}

// The right operand is packed as a whole: what a few rows sum up to is stored while it is near.
template <class T>
void run_in_tiles(const Part<T>& whole, const Finish<T>& finish) {
  for (std::int64_t column = 0; column < whole.right.columns; column += kMaxColumns) {
    const std::int64_t columns = std::min(kMaxColumns, whole.right.columns - column);
    const Part<T> strip = whole.cut(0, column, whole.result.rows, columns);
    const PackedRight<T> packed = strip.panels != nullptr
                                      ? PackedRight<T>(strip.panels, strip.right.rows, columns)
                                      : PackedRight<T>(strip.right, strip.left.rows);
    for (std::int64_t row = 0; row < strip.left.rows; row += kTileRows) {
      const std::int64_t rows = std::min(kTileRows, strip.left.rows - row);
      const Part<T> p = strip.cut(row, 0, rows, columns);
      if constexpr (std::is_same_v<T, BFloat16>) {
        if (p.result.row_major()) {
          run_tile(p, packed, finish);
          finish(p);
          continue;
        }
      }
      float* to = t_accumulators.get<float>(rows * columns);
      if (p.added()) initialise(p.addend, p.beta, to, columns);
      packed.multiply(p.left, to, columns, p.added());
      store(to, p.result);
      finish(p);
    }
  }
}

template <class T>
void run_in_accumulators(const Part<T>& p) {
  float* to = t_accumulators.get<float>(p.result.rows * p.result.columns);
  if (p.added()) initialise(p.addend, p.beta, to, p.result.columns);
  multiply(p.left, p.right, to, p.result.columns, p.added());
  store(to, p.result);
}

// A row times a matrix whose columns are dense: as many inner products as columns.
template <class T>
void run_vector(const Part<T>& p) {
  float* to = t_accumulators.get<float>(2 * p.result.columns);
  multiply_vector(p.left.data, p.right.transposed(), to);
  if (p.added()) {
    float* sum = to + p.result.columns;
    initialise(p.addend, p.beta, sum, p.result.columns);
    for (std::int64_t j = 0; j < p.result.columns; ++j) to[j] += sum[j];
  }
  MatrixView<T> result = p.result;
  for (std::int64_t j = 0; j < result.columns; ++j) {
    result.data[j * result.column_stride] = static_cast<T>(to[j]);
  }
}

template <class T>
void run_part(const Part<T>& p, const Finish<T>& finish) {
  const bool in_place = std::is_same_v<T, float> && p.result.row_major();
  if (p.result.rows == 1 && p.right.column_major() && !p.continues) {
    run_vector(p);
  } else if (!in_place && p.left.columns <= kMaxInner<T>) {
    return run_in_tiles(p, finish);
  } else if constexpr (std::is_same_v<T, float>) {
    in_place ? run_in_place(p) : run_in_accumulators(p);
  } else {
    run_in_accumulators(p);
  }
  finish(p);
}

// The transposed product's left operand is the right one of this one, and may lie as it should.
template <class T>
bool prefers_transposed(const Problem<T>& p) {
  if (p.rows() == 1 || p.options.sums_batch) return false;
  if (p.columns() == 1) return true;
  if (p.right.first.row_major()) return false;
  if (!p.left.first.row_major()) return true;
  return p.rows() <= kFewRows && p.columns() >= 2 * p.rows();
}

// Transposes a left operand that lies the wrong way, for all blocks.
template <class T>
void turn_left(Grid& grid, Problem<T>& p) {
  const MatrixView<const T> from = p.left.first;
  // A cache line more, so that the rows do not all begin in the same set of the cache.
  const std::int64_t ld = from.columns + 64 / static_cast<std::int64_t>(sizeof(T));
  if (from.rows * ld > kMaxTurned) return;
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, float>;
  T* to = t_left_of_all.get<T>(from.rows * ld);
  grid.run_by_any(parts(from.columns, kTurnedAtOnce), [&](std::int64_t index) {
    const std::int64_t column = index * kTurnedAtOnce;
    transpose(std::min(kTurnedAtOnce, from.columns - column), from.rows,
              reinterpret_cast<const Bits*>(from.data + column * from.column_stride),
              from.column_stride, reinterpret_cast<Bits*>(to + column), ld);
  });
  p.left.first = {to, from.rows, from.columns, ld, 1};
}

// Packs the right operand for all blocks.
template <class T>
void pack_right(Grid& grid, Problem<T>& p) {
  const MatrixView<const T> from = p.right.first;
  const std::int64_t elements = from.rows * from.columns;
  if (from.rows > kMaxInner<T> || elements < kLeastPacked || elements > kMaxPacked) return;
  const std::int64_t panel = panel_step<T>(from.rows);
  T* to = t_right_of_all.get<T>(parts(from.columns, kPanel) * panel);
  // In the direction in which the operand is read as it lies.
  if (from.row_major()) {
    const std::int64_t rows = std::max<std::int64_t>(kPackedAtOnce / from.columns / 2 * 2, 2);
    grid.run_by_any(parts(from.rows, rows), [&](std::int64_t index) {
      const std::int64_t row = index * rows;
      pack_panels(from, row, std::min(rows, from.rows - row), to);
    });
  } else {
    const std::int64_t panels = std::max<std::int64_t>(kPackedAtOnce / from.rows / kPanel, 1);
    const std::int64_t columns = panels * kPanel;
    grid.run_by_any(parts(from.columns, columns), [&](std::int64_t index) {
      const std::int64_t column = index * columns;
      pack_panels(from.part(0, column, from.rows, std::min(columns, from.columns - column)), 0,
                  from.rows, to + index * panels * panel);
    });
  }
  p.panels = to;
}

// Other addends and activations are ATen's work.
template <class T>
RunBy run_by(const Problem<T>& p) {
  const bool added = p.addend.first.data != nullptr && p.options.beta != 0;
  const bool plain = p.options.activation == ProductActivation::kNone &&
                     (!added || is_bias(p.addend.first, p.options.beta) ||
                      is_turned_bias(p.addend.first, p.options.beta));
  return plain ? RunBy::kAny : RunBy::kDevice;
}

template <class T>
void run(Grid& grid, Problem<T> p) {
  const bool turned = prefers_transposed(p);
  if (turned) {
    std::swap(p.left, p.right);
    for (auto* side : {&p.left, &p.right, &p.addend}) side->first = side->first.transposed();
    p.result.first = p.result.first.transposed();
  }
  if (p.batch == 1 && !p.left.first.row_major() && p.columns() > kMaxColumns) turn_left(grid, p);
  const Block block = block_of(p);
  const std::int64_t down = parts(p.rows(), block.rows);
  const std::int64_t across = parts(p.columns(), block.columns);
  if constexpr (std::is_same_v<T, BFloat16>) {
    // One row is multiplied without panels (run_vector).
    if (p.batch == 1 && p.rows() > 1 && p.result.first.row_major()) pack_right(grid, p);
  }
  const Finish<T> finish{grid, p.options.activation, turned, p.batch == 1};
  const auto run_block = [&](std::int64_t index) {
    const MatrixUnitScope<T> scope;
    const std::int64_t column = index % across * block.columns;
    const std::int64_t row = index / across % down * block.rows;
    const std::int64_t first = index / (across * down) * block.items;
    const std::int64_t rows = std::min(block.rows, p.rows() - row);
    const std::int64_t columns = std::min(block.columns, p.columns() - column);
    for (std::int64_t i = first; i < std::min(first + block.items, p.batch); ++i) {
      const Part<T> whole{p.result.item(i), p.addend.item(i), p.left.item(i),
                          p.right.item(i),  p.options.beta,   p.options.sums_batch && i > first,
                          p.panels};
      run_part(whole.cut(row, column, rows, columns), finish);
    }
  };
  grid.run(parts(p.batch, block.items) * down * across, run_block, run_by(p));
}

template <class T>
bool suits(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right) {
  if (!can_multiply<T>() || result.numel() == 0 || left.numel() == 0) return false;
  const auto view = [](const at::Tensor& tensor) {
    // Addresses count only in what they are divisible by, which is the same on loom.
    return operand<const T>(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(),
                            tensor.strides());
  };
  const auto to = view(result), a = view(left), b = view(right);
  const std::int64_t inner = a.first.columns;
  if (inner < 1) return false;
  if (to.first.rows == 1) return a.first.column_stride == 1 && b.first.column_major();
  if (to.first.columns == 1) return b.first.row_stride == 1 && a.first.row_major();
  if (!to.first.row_major() && !to.first.column_major()) return false;
  if (static_cast<double>(result.numel()) * static_cast<double>(inner) < kLeastProduct)
    return false;
  return can_pack(a.first, inner) && can_pack(b.first, inner) &&
         (std::is_same_v<T, float> || (a.step % 2 == 0 && b.step % 2 == 0));
}

template <class T>
void start(Grid& grid, const TensorRef& result, const TensorRef& addend, const TensorRef& left,
           const TensorRef& right, ProductOptions options) {
  Problem<T> problem{.result = operand<T>(result),
                     .addend = {},
                     .left = operand<const T>(left),
                     .right = operand<const T>(right),
                     .batch = result.dim() == 3 ? result.sizes()[0] : 1,
                     .options = options};
  if (addend.defined()) problem.addend = broadcast<T>(addend, result);
  run(grid, problem);
}

}  // namespace

bool suits_blocked_product(const at::Tensor& result, const at::Tensor& left,
                           const at::Tensor& right) {
  const c10::ScalarType dtype = result.scalar_type();
  if (dtype != c10::ScalarType::Float && dtype != c10::ScalarType::BFloat16) return false;
  for (const at::Tensor* tensor : {&left, &right, &result}) {
    if (tensor->scalar_type() != dtype || tensor->is_conj() || tensor->is_neg()) return false;
  }
  return dtype == c10::ScalarType::Float ? suits<float>(result, left, right)
                                         : suits<BFloat16>(result, left, right);
}

void blocked_product(Grid& grid, const TensorRef& result, const TensorRef& addend,
                     const TensorRef& left, const TensorRef& right, ProductOptions options) {
  if (result.dtype() == c10::ScalarType::Float) {
    start<float>(grid, result, addend, left, right, options);
  } else {
    start<BFloat16>(grid, result, addend, left, right, options);
  }
}

void launch_blocked_product(const char* name, const at::Tensor& result, const at::Tensor& addend,
                            const at::Tensor& left, const at::Tensor& right,
                            ProductOptions options) {
  const double work = static_cast<double>(result.numel()) * static_cast<double>(left.size(-1));
  if (result.dim() == 2 && result.is_contiguous() && work >= kLeastOpen) {
    launch_open(name, {result.size(0), result.size(1)}, blocked_product, out(result), addend, left,
                right, options);
  } else {
    launch(name, Custom{}, blocked_product, out(result), addend, left, right, options);
  }
}

}  // namespace loom::ops
