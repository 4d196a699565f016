// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/blocked_product.h"

#include "loom/base/ceil_div.h"
#include "loom/ops/launch/launch_open.h"
#include "loom/ops/launch/self_overlap.h"
#include "loom/ops/recipes/product/multiply.h"
#include "loom/ops/recipes/product/narrow_part.h"
#include "loom/ops/recipes/product/product_blocks.h"
#include "loom/ops/recipes/product/product_part.h"
#include "loom/ops/recipes/product/widened_product.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace loom::ops {
namespace {

using detail::Block;
using detail::block_of;
using detail::broadcast;
using detail::cut;
using detail::Finish;
using detail::is_bias;
using detail::is_narrow;
using detail::is_turned_bias;
using detail::is_widened;
using detail::operand;
using detail::Part;
using detail::Problem;
using detail::reads_columns;
using detail::run_narrow;
using detail::run_part;
using detail::run_widened;

// Below this calling the block kernel is no faster than calling MKL.
constexpr double kLeastProduct = 16 * 16 * 16;
// Left operands with few rows become the right one, so that the other need not be packed.
constexpr std::int64_t kFewRows = 64;
// A left operand that lies the wrong way, or of bfloat16 at odd distances, is copied once for all
// blocks if it has enough inner elements and the product enough columns and multiply-adds to make
// up for the wait of the cores for each other in between...
constexpr std::int64_t kFewestCopiedColumns = 128;
constexpr std::int64_t kFewestCopiedInner = 256;
constexpr double kLeastCopied = 2 * detail::kBlock;
// ... if it is not too large, or where sums can be gone on with, in pieces that stay in a far cache
// and are deep enough for that to cost little.
constexpr std::int64_t kMaxCopiedBytes = 16 << 20;
constexpr std::int64_t kCopiedPieceBytes = 8 << 20;
constexpr std::int64_t kFewestPieceInner = 512;
// Inner elements of a task of that work, and elements where it copies rows.
constexpr std::int64_t kCopiedAtOnce = 128;
constexpr std::int64_t kCopiedElements = 64 << 10;

const Scratch t_left_of_all;

// The transposed product's left operand is the right one of this one, and may lie as it should.
template <class T, class E>
bool prefers_transposed(const Problem<T, E>& p) {
  if (p.rows() == 1 || p.options.sums_batch || reads_columns(p)) return false;
  if (p.columns() == 1) return true;
  if (is_narrow(p.right.first) && p.result.first.row_major()) return false;
  if (p.right.first.row_major()) return false;
  if (!p.left.first.row_major()) return true;
  return p.rows() <= kFewRows && p.columns() >= 2 * p.rows();
}

// How many inner elements of the left operand are copied before the blocks use them; 0: none.
template <class T, class E>
std::int64_t copied_depth(const Problem<T, E>& p) {
  if (p.batch > 1 || p.rows() == 1 || reads_columns(p)) return 0;
  const bool any_rows = std::is_same_v<T, c10::BFloat16> && rounds_in_registers();
  if (any_rows ? p.left.first.row_major() : has_kernel_rows(p.left.first)) return 0;
  const std::int64_t inner = p.inner();
  const double work =
      static_cast<double>(p.rows()) * static_cast<double>(p.columns()) * static_cast<double>(inner);
  const bool pays =
      p.columns() > kMaxColumns ||
      (p.columns() >= kFewestCopiedColumns && inner >= kFewestCopiedInner && work >= kLeastCopied);
  if (!pays) return 0;
  const auto bytes = [&](std::int64_t depth) {
    return p.rows() * row_step<E>(depth) * static_cast<std::int64_t>(sizeof(E));
  };
  // Only sums that are the result itself can be gone on with.
  const bool in_place = std::is_same_v<T, float> && p.result.first.row_major();
  const std::int64_t depth =
      in_place ? cut(inner, ceil_div(bytes(inner), kCopiedPieceBytes), kCopiedAtOnce) : inner;
  return depth >= std::min(inner, kFewestPieceInner) && bytes(depth) <= kMaxCopiedBytes ? depth : 0;
}

// Copies the left operand for all blocks.
template <class T, class E>
void copy_left(Grid& grid, Problem<T, E>& p) {
  const MatrixView<const E> from = p.left.first;
  const std::int64_t ld = row_step<E>(from.columns);
  E* to = t_left_of_all.get<E>(from.rows * ld);
  if (from.row_major()) {
    const std::int64_t rows = std::max<std::int64_t>(kCopiedElements / from.columns, 1);
    grid.run_by_any(ceil_div(from.rows, rows), [&](std::int64_t index) {
      const std::int64_t row = index * rows;
      copy_kernel_rows(from.part(row, 0, std::min(rows, from.rows - row), from.columns),
                       to + row * ld, ld);
    });
  } else {
    grid.run_by_any(ceil_div(from.columns, kCopiedAtOnce), [&](std::int64_t index) {
      const std::int64_t column = index * kCopiedAtOnce;
      const std::int64_t columns = std::min(kCopiedAtOnce, from.columns - column);
      copy_kernel_rows(from.part(0, column, from.rows, columns), to + column, ld);
    });
  }
  p.left.first = {to, from.rows, padded_inner<E>(from.columns), ld, 1};
}

// Other addends and activations are ATen's work.
template <class T, class E>
RunBy run_by(const Problem<T, E>& p) {
  const bool added = p.addend.first.data != nullptr && p.options.beta != 0;
  const bool plain = p.options.activation == ProductActivation::kNone &&
                     (!added || p.addend.first.column_stride == 1 ||
                      is_turned_bias(p.addend.first, p.options.beta));
  return plain ? RunBy::kAny : RunBy::kDevice;
}

// All blocks of a piece of the inner dimension. `continues`: the result has the sums of earlier
// pieces in it. `ends`: no more follow, so the activation and the operators after it run.
template <class T, class E>
void run_blocks(Grid& grid, const Problem<T, E>& p, bool turned, bool continues, bool ends) {
  const Block block = block_of(p);
  const std::int64_t down = ceil_div(p.rows(), block.rows);
  const std::int64_t across = ceil_div(p.columns(), block.columns);
  const bool finishes = ends && !p.options.sums_batch, few_rows = reads_columns(p);
  const bool at_once =
      finishes_at_once(block.items * block.rows * block.columns, p.batch * p.rows() * p.columns());
  const Finish<T, E> finish{grid, ends ? p.options.activation : ProductActivation::kNone, turned,
                            finishes && !at_once};
  const bool narrow = is_narrow(p.right.first) && !few_rows && !p.options.sums_batch;
  const auto run_block = [&](std::int64_t index) {
    const MatrixUnitScope<E> scope;
    const std::int64_t column = index % across * block.columns;
    const std::int64_t row = index / across % down * block.rows;
    const std::int64_t first = index / (across * down) * block.items;
    const std::int64_t rows = std::min(block.rows, p.rows() - row);
    const std::int64_t columns = std::min(block.columns, p.columns() - column);
    for (std::int64_t i = first; i < std::min(first + block.items, p.batch); ++i) {
      const bool goes_on = continues || (p.options.sums_batch && i > first);
      Part<T, E> whole{
          p.result.item(i), p.addend.item(i), p.left.item(i), p.right.item(i), p.options.beta,
          p.options.alpha,  goes_on,          few_rows,       p.row,           p.column};
      // Results of a batch are rows of one matrix.
      (turned ? whole.column : whole.row) += i * (turned ? p.columns() : p.rows());
      const Part<T, E> part = whole.cut(row, column, rows, columns);
      if constexpr (std::is_same_v<E, float>) {
        if (narrow) {
          run_narrow(part, finish);
          continue;
        }
      }
      run_part(part, finish);
    }
  };
  grid.run(ceil_div(p.batch, block.items) * down * across, run_block, run_by(p));
  if (finishes && at_once) {
    if (turned) {
      grid.finish(p.column, p.batch * p.columns(), p.row, p.rows());
    } else {
      grid.finish(p.row, p.batch * p.rows(), p.column, p.columns());
    }
  }
}

template <class T, class E>
void run(Grid& grid, Problem<T, E> p) {
  const bool turned = prefers_transposed(p);
  if (turned) {
    std::swap(p.left, p.right);
    std::swap(p.row, p.column);
    for (auto* side : {&p.left, &p.right}) side->first = side->first.transposed();
    p.addend.first = p.addend.first.transposed();
    p.result.first = p.result.first.transposed();
  }
  const std::int64_t inner = p.inner(), copied_at_once = copied_depth(p);
  const std::int64_t depth = copied_at_once > 0 ? copied_at_once : inner;
  for (std::int64_t k = 0; k < inner; k += depth) {
    Problem<T, E> piece = p;
    const std::int64_t rest = std::min(depth, inner - k);
    piece.left.first = p.left.first.part(0, k, p.rows(), rest);
    piece.right.first = p.right.first.part(k, 0, rest, p.columns());
    if (copied_at_once > 0) copy_left(grid, piece);
    run_blocks(grid, piece, turned, k > 0, k + depth >= inner);
  }
}

// Only a few rows that meet dense columns are multiplied where they lie.
template <class T>
void run_half(Grid& grid, const Problem<T>& p) {
  if (reads_columns(p)) {
    run_blocks(grid, p, /*turned=*/false, /*continues=*/false, /*ends=*/true);
  } else {
    run_widened(grid, p, [&](const Problem<T, float>& widened) { run(grid, widened); });
  }
}

// Pairs and tiles of bfloat16 with so few inner elements and columns are mostly empty.
template <class T>
bool is_mostly_empty(const Problem<T>& p) {
  constexpr std::int64_t kFew = 16;
  return p.inner() <= kFew && std::min(p.rows(), p.columns()) <= kFew;
}

template <class T>
bool suits(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right,
           ProductsOf use) {
  const bool can = can_multiply<T>(use) || multiplies_in_floats(result.scalar_type());
  if (!can || result.numel() == 0 || left.numel() == 0) return false;
  const auto view = [](const at::Tensor& tensor) {
    return operand<const T>(nullptr, tensor.sizes(), tensor.strides());
  };
  const auto to = view(result), a = view(left), b = view(right);
  const std::int64_t inner = a.first.columns;
  if (inner < 1) return false;
  if (to.first.rows == 1) return a.first.column_stride == 1 && b.first.column_major();
  if (to.first.columns == 1) return b.first.row_stride == 1 && a.first.row_major();
  if (!to.first.row_major() && !to.first.column_major()) return false;
  if (static_cast<double>(result.numel()) * static_cast<double>(inner) < kLeastProduct)
    return false;
  return can_pack(a.first) && can_pack(b.first);
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
  if constexpr (!std::is_same_v<T, float>) {
    if (is_widened<T>() || is_mostly_empty(problem)) return run_half(grid, problem);
  }
  if constexpr (!std::is_same_v<T, c10::Half>) run(grid, std::move(problem));
}

}  // namespace

bool suits_blocked_product(const at::Tensor& result, const at::Tensor& left,
                           const at::Tensor& right, ProductsOf use) {
  const c10::ScalarType dtype = result.scalar_type();
  switch (dtype) {
    case c10::ScalarType::Float:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Half:
      break;
    default:
      return false;
  }
  for (const at::Tensor* tensor : {&left, &right, &result}) {
    if (tensor->scalar_type() != dtype || tensor->is_conj() || tensor->is_neg()) return false;
  }
  // Of a batch that is summed up the result is given as one that is expanded.
  const bool expanded = result.dim() == 3 && result.stride(0) == 0;
  const std::size_t skipped = expanded ? 1 : 0;
  if (may_overlap_itself(result.sizes().slice(skipped), result.strides().slice(skipped))) {
    return false;
  }
  bool made = false;
  with_floats(dtype,
              [&](auto element) { made = suits<decltype(element)>(result, left, right, use); });
  return made;
}

void blocked_product(Grid& grid, const TensorRef& result, const TensorRef& addend,
                     const TensorRef& left, const TensorRef& right, ProductOptions options) {
  with_floats(result.dtype(), [&](auto element) {
    start<decltype(element)>(grid, result, addend, left, right, options);
  });
}

void launch_blocked_product(const char* name, const at::Tensor& result, const at::Tensor& addend,
                            const at::Tensor& left, const at::Tensor& right,
                            ProductOptions options) {
  const double work = static_cast<double>(result.numel()) * static_cast<double>(left.size(-1));
  if (result.is_contiguous()) {
    const std::int64_t columns = result.size(-1);
    launch_open_if_long(name, {result.numel() / columns, columns}, work, blocked_product,
                        out(result), addend, left, right, options);
  } else {
    launch(name, Custom{}, blocked_product, out(result), addend, left, right, options);
  }
}

}  // namespace loom::ops
