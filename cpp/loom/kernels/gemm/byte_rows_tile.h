// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How products of rows of bytes go through the matrix; for files as simd/floats.h is for. `Step`
// says how many bytes a step takes (kStep), what vectors they become, and how these are multiplied;
// kMove is what it has added to each byte of a row. Thread: any.

#include "loom/kernels/gemm/byte_rows.h"
#include "loom/simd/lane_sums.h"

#include <algorithm>

namespace loom::kernels::gemm::LOOM_SIMD {
using namespace simd::LOOM_SIMD;

// Columns that are read at a time; as many rows' sums stay in registers.
constexpr int kByteColumns = kLanes >= 16 ? 4 : 2;
// A column's products with rows follow each other so closely only when there are some sums.
constexpr int kByteRows = 4;

/// The columns of a group. The last one stands for those that are beyond it.
struct ByteGroup {
  const std::int8_t* columns[kByteColumns];
  std::uint32_t surplus[kByteColumns];  ///< what moved rows have too much
  std::int64_t first, count;
};

/// The bytes of a row from k on, zeros behind its end.
template <class Step>
[[gnu::always_inline]] inline auto load_bytes(const std::int8_t* from, std::int64_t count) {
  if (count >= Step::kStep) return Step::whole(from);
  std::int8_t bytes[Step::kStep] = {};
  std::memcpy(bytes, from, static_cast<std::size_t>(count));
  return Step::whole(bytes);
}

/// Sums of kRows rows with the columns, each to a vector of its own.
template <int kRows, class Step>
[[gnu::always_inline]] inline void sum_bytes(const ByteRows& p, const std::int8_t* left,
                                             const ByteGroup& group,
                                             Bits (&sums)[kRows * kByteColumns]) {
  // A single row needs more sums for additions not to wait for each other.
  constexpr int kChains = kRows == 1 ? 2 : 1;
  Bits chains[kChains][kRows][kByteColumns] = {};
  const auto add = [&](std::int64_t k, auto& to, std::int64_t count)
                       __attribute__((always_inline)) {
                         typename Step::Vector rows[kRows];
                         for (int r = 0; r < kRows; ++r) {
                           rows[r] = Step::moved(load_bytes<Step>(left + r * p.left_ld + k, count));
                         }
                         for (int c = 0; c < kByteColumns; ++c) {
                           const auto column = load_bytes<Step>(group.columns[c] + k, count);
                           for (int r = 0; r < kRows; ++r) {
                             to[r][c] = Step::add(to[r][c], rows[r], column);
                           }
                         }
                       };
  std::int64_t k = 0;
  for (; k + kChains * Step::kStep <= p.inner; k += kChains * Step::kStep) {
    for (int chain = 0; chain < kChains; ++chain) {
      add(k + chain * Step::kStep, chains[chain], Step::kStep);
    }
  }
  for (; k + Step::kStep <= p.inner; k += Step::kStep) add(k, chains[0], Step::kStep);
  if (k < p.inner) add(k, chains[0], p.inner - k);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kByteColumns; ++c) {
      Bits& sum = sums[r * kByteColumns + c];
      sum = chains[0][r][c];
      for (int chain = 1; chain < kChains; ++chain) sum += chains[chain][r][c];
    }
  }
}

template <int kRows, class Step>
[[gnu::always_inline]] inline std::int64_t multiply_bytes_of(const ByteRows& p, std::int64_t row,
                                                             const ByteGroup& group) {
  constexpr int kSums = kRows * kByteColumns, kWide = static_cast<int>(kLanes);
  for (; row + kRows <= p.rows; row += kRows) {
    Bits sums[kSums];
    sum_bytes<kRows, Step>(p, p.left + row * p.left_ld, group, sums);
    std::uint32_t totals[kSums + kWide];
    for (int i = 0; i < kSums; i += kWide) {
      Bits some[kLanes] = {};
      for (int lane = 0; lane < kWide && i + lane < kSums; ++lane) some[lane] = sums[i + lane];
      const Bits lanes = sums_of_lanes(some);
      std::memcpy(totals + i, &lanes, sizeof lanes);
    }
    for (int r = 0; r < kRows; ++r) {
      std::int32_t* const to = p.to + (row + r) * p.ld + group.first;
      for (std::int64_t c = 0; c < group.count; ++c) {
        to[c] = static_cast<std::int32_t>(totals[r * kByteColumns + c] - group.surplus[c]);
      }
    }
  }
  return row;
}

template <class Step>
[[gnu::always_inline]] inline void find_surplus(const ByteRows& p, ByteGroup& group) {
  for (int c = 0; c < kByteColumns; ++c) {
    group.surplus[c] = 0;
    if constexpr (Step::kMove != 0) {
      Bits sum = {};
      for (std::int64_t k = 0; k < p.inner; k += Step::kStep) {
        sum = Step::add(sum, Step::moves(), load_bytes<Step>(group.columns[c] + k, p.inner - k));
      }
      for (int lane = 0; lane < kLanes; ++lane) group.surplus[c] += sum[lane];
    }
  }
}

template <class Step>
[[gnu::always_inline]] inline void multiply_all_bytes(const ByteRows& p) {
  for (std::int64_t first = 0; first < p.columns; first += kByteColumns) {
    ByteGroup group;
    group.first = first;
    group.count = std::min<std::int64_t>(kByteColumns, p.columns - first);
    for (int c = 0; c < kByteColumns; ++c) {
      group.columns[c] = p.matrix + std::min(first + c, p.columns - 1) * p.stride;
    }
    find_surplus<Step>(p, group);
    const std::int64_t row = multiply_bytes_of<kByteRows, Step>(p, 0, group);
    multiply_bytes_of<1, Step>(p, row, group);
  }
}

}  // namespace loom::kernels::gemm::LOOM_SIMD
