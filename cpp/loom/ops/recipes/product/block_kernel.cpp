// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/product/block_kernel.h"

#include "loom/base/simd_level.h"
#include "loom/device/scratch.h"
#include "loom/kernels/copy/rows.h"
#include "loom/kernels/gemm/bfloat16.h"
#include "loom/ops/launch/elements.h"
#include "loom/ops/recipes/product/multiply.h"

#include <ATen/Context.h>
#include <ATen/native/CPUBlas.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>

namespace loom::ops {
namespace {

using c10::BFloat16;
using kernels::copy_rows;

const Scratch kLeftCopy, kRightCopy, kResultCopy, kLeftTail, kRightTail;

std::uint64_t hash_of(const BlockShape& shape, std::size_t element_bytes) {
  const auto sizes = static_cast<std::uint64_t>(shape.rows << 44 ^ shape.columns << 32 ^
                                                shape.inner << 8 ^ (shape.add ? 1 : 0)) ^
                     element_bytes << 4;
  std::uint64_t hash = sizes;
  for (const std::int64_t ld : {shape.left_ld, shape.right_ld, shape.to_ld}) {
    hash = (hash ^ static_cast<std::uint64_t>(ld)) * 0x9E37'79B9'7F4A'7C15U;
    hash ^= hash >> 29U;
  }
  return hash == 0 ? 1 : hash;  // 0 marks a free place
}

/// The shapes for which a thread has kernels. By their hashes: two shapes with the same one make a
/// kernel more than there should be.
class Shapes {
 public:
  /// Whether there is a kernel for the shape, or may be from now on.
  bool admits(std::uint64_t hash) noexcept {
    if (hash == latest_) return true;
    std::size_t place = hash % admitted_.size();
    for (; admitted_[place] != 0; place = (place + 1) % admitted_.size()) {
      if (admitted_[place] != hash) continue;
      latest_ = hash;
      return true;
    }
    if (count_ >= kAtSight && !is_much_used(hash)) return false;
    admitted_[place] = latest_ = hash;
    ++count_;
    return true;
  }

 private:
  // A model of fixed sizes has some hundred shapes.
  static constexpr std::size_t kAtSight = 512, kMost = 1024;
  // Making a kernel costs as much as so many blocks' copies.
  static constexpr std::uint64_t kMuchUsed = 256;

  struct Candidate {
    std::uint64_t hash = 0, uses = 0;
  };

  bool is_much_used(std::uint64_t hash) noexcept {
    if (count_ >= kMost) return false;
    Candidate& candidate = candidates_[hash % candidates_.size()];
    if (candidate.hash != hash) candidate = {hash, 0};
    return ++candidate.uses >= kMuchUsed;
  }

  std::uint64_t latest_ = 0;
  std::size_t count_ = 0;
  std::array<std::uint64_t, 2 * kMost> admitted_{};
  std::array<Candidate, 256> candidates_{};
};

// oneDNN's kernel counts the bytes from its first row to any other in 32 bits.
template <class T>
bool is_within_reach(const BlockShape& shape) noexcept {
  constexpr std::int64_t kReach = std::numeric_limits<std::int32_t>::max();
  const std::int64_t rows = std::max(shape.rows, kTileRows);  // its own blocks' may be more
  const std::int64_t left = rows * shape.left_ld, right = shape.inner * shape.right_ld;
  return std::max(left, right) <= kReach / static_cast<std::int64_t>(sizeof(T)) &&
         rows * shape.to_ld <= kReach / static_cast<std::int64_t>(sizeof(float));
}

template <class T>
bool has_kernel(const BlockShape& shape) {
  if (!is_within_reach<T>(shape)) [[unlikely]] {
    return false;
  }
  thread_local std::unique_ptr<Shapes> shapes;
  if (shapes == nullptr) [[unlikely]] {
    shapes = std::make_unique<Shapes>();
  }
  return shapes->admits(hash_of(shape, sizeof(T)));
}

void run_kernel(const BlockShape& s, const float* left, const float* right, float* to) {
  at::native::cpublas::brgemm(s.rows, s.columns, s.inner, s.left_ld, s.right_ld, s.to_ld, s.add,
                              left, right, to, false);
}

// The block kernel asks whether oneDNN is enabled whenever it runs, and throws if not. Whether it
// was, counts when the product is submitted: a graph may be replayed later, and C++ may change the
// setting beside the queue.
void run_kernel(const BlockShape& s, const BFloat16* left, const BFloat16* right, float* to) {
  if (at::globalContext().userEnabledMkldnn()) [[likely]] {
    try {
      at::native::cpublas::brgemm(s.rows, s.columns, s.inner, s.left_ld, s.right_ld, s.to_ld, s.add,
                                  left, right, to, true);
      return;
    } catch (const c10::Error&) {  // disabled since it was asked
      if (at::globalContext().userEnabledMkldnn()) throw;
    }
  }
  kernels::gemm::multiply_pairs(s.rows, s.columns, s.inner, stored(left), s.left_ld, stored(right),
                                s.right_ld, to, s.to_ld, s.add);
}

std::int64_t power_of_two(std::int64_t size, std::int64_t least) {
  return std::max(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size))),
                  least);
}

// The next power of two, or three quarters of it.
std::int64_t inner_size(std::int64_t inner) {
  constexpr std::int64_t kLeast = 32;
  const std::int64_t above = power_of_two(inner, kLeast);
  return above > kLeast && inner <= above / 4 * 3 ? above / 4 * 3 : above;
}

// Rows and columns beyond the block's have any values, and their results go nowhere. Zeros beyond
// its inner size add nothing to a sum, to the last bit.
template <class T>
void run_in_few_shapes(const BlockShape& s, const T* left, const T* right, float* to) {
  constexpr std::int64_t kLeast = 16;
  constexpr std::int64_t kInPair = sizeof(float) / sizeof(T);  // elements that lie side by side
  const std::int64_t inner = inner_size(s.inner);
  const BlockShape few{power_of_two(s.rows, kLeast),
                       power_of_two(s.columns, kLeast),
                       inner,
                       row_step<T>(inner),
                       kPanel,
                       kPanel,
                       s.add};
  T* const left_copy = kLeftCopy.get<T>(few.rows * few.left_ld);
  copy_rows(s.rows, s.inner, inner, left, s.left_ld, left_copy, few.left_ld);

  const bool whole_panel = s.right_ld == kPanel && s.columns == few.columns && s.inner == inner;
  if (!whole_panel) {
    float* const right_copy = kRightCopy.get<float>(inner / kInPair * kPanel);
    copy_rows(s.inner / kInPair, s.columns, s.columns, reinterpret_cast<const float*>(right),
              s.right_ld, right_copy, kPanel);
    std::fill(right_copy + s.inner / kInPair * kPanel, right_copy + inner / kInPair * kPanel, 0.F);
    right = reinterpret_cast<const T*>(right_copy);
  }

  float* const sums = kResultCopy.get<float>(few.rows * kPanel);
  if (s.add) copy_rows(s.rows, s.columns, s.columns, to, s.to_ld, sums, kPanel);
  run_kernel(few, left_copy, right, sums);
  copy_rows(s.rows, s.columns, s.columns, sums, kPanel, to, s.to_ld);
}

template <class T>
void multiply_any_block(const BlockShape& shape, const T* left, const T* right, float* to) {
  if (has_kernel<T>(shape)) [[likely]] {
    run_kernel(shape, left, right, to);
  } else {
    run_in_few_shapes(shape, left, right, to);
  }
  // After the thread-local objects above, and ATen's kernels.
  thread_local const loom::detail::LeavingNote note;
}

// The products that one instruction of AMX adds up: a row of a tile register, of 64 bytes.
constexpr std::int64_t kTileInner = 32;

// LOOM_SIMD does not keep oneDNN from them.
bool sums_in_tiles() {
  static const bool in_tiles = processor_simd_level() == SimdLevel::kAmx;
  return in_tiles;
}

// A tile's products are added up before they are added to the sum, so that it makes a difference
// where a sum is cut. With inner sizes that are no multiples of a tile's, blocks and their copies
// in few shapes differed (60 of 200 products); with whole tiles none did, and zeros fill one.
void multiply_in_whole_tiles(const BlockShape& s, const BFloat16* left, const BFloat16* right,
                             float* to) {
  const std::int64_t whole = s.inner / kTileInner * kTileInner, rest = s.inner - whole;
  BlockShape part = s;
  if (whole > 0) {
    part.inner = whole;
    multiply_any_block(part, left, right, to);
    part.add = true;
  }
  part.inner = kTileInner;
  part.left_ld = row_step<BFloat16>(kTileInner);
  part.right_ld = kPanel;
  BFloat16* const left_tail = kLeftTail.get<BFloat16>(s.rows * part.left_ld);
  copy_rows(s.rows, rest, kTileInner, left + whole, s.left_ld, left_tail, part.left_ld);
  // Rows in pairs, which are moved as one element each.
  const std::int64_t pair_count = ceil_div<std::int64_t>(rest, 2);
  const auto* const pairs = reinterpret_cast<const float*>(right) + whole / 2 * s.right_ld;
  float* const right_tail = kRightTail.get<float>(kTileInner / 2 * kPanel);
  copy_rows(pair_count, s.columns, s.columns, pairs, s.right_ld, right_tail, kPanel);
  std::fill(right_tail + pair_count * kPanel, right_tail + kTileInner / 2 * kPanel, 0.F);
  multiply_any_block(part, left_tail, reinterpret_cast<const BFloat16*>(right_tail), to);
}

// The last of an odd number of inner elements becomes a pair with a zero: what lies behind it, in
// memory that may not be there, is nobody's.
void multiply_odd_inner(const BlockShape& s, const BFloat16* left, const BFloat16* right,
                        float* to) {
  BlockShape part = s;
  part.inner = s.inner - 1;
  if (part.inner > 0) {
    multiply_any_block(part, left, right, to);
    part.add = true;
  }
  BFloat16* const tail = kLeftTail.get<BFloat16>(2 * s.rows);
  std::fill_n(tail, 2 * s.rows, BFloat16(0));
  kernels::copy_steps(s.rows, left + s.inner - 1, s.left_ld, tail, 2);
  part.inner = part.left_ld = 2;
  multiply_any_block(part, tail, right + (s.inner - 1) * s.right_ld, to);
}

}  // namespace

void multiply_block(const BlockShape& shape, const float* left, const float* right, float* to) {
  if (shape.columns <= kPanel || has_kernel<float>(shape)) {
    return multiply_any_block(shape, left, right, to);
  }
  BlockShape panel = shape;
  for (std::int64_t column = 0; column < shape.columns; column += kPanel) {
    panel.columns = std::min(kPanel, shape.columns - column);
    multiply_any_block(panel, left, right + column, to + column);
  }
}

void multiply_block(const BlockShape& shape, const BFloat16* left, const BFloat16* right,
                    float* to) {
  if (sums_in_tiles() && shape.inner % kTileInner != 0) {
    multiply_in_whole_tiles(shape, left, right, to);
  } else if (shape.inner % 2 != 0) {
    multiply_odd_inner(shape, left, right, to);
  } else {
    multiply_any_block(shape, left, right, to);
  }
}

}  // namespace loom::ops
