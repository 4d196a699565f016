// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What attention does with a tile of scores between two products, in float32 whatever the elements
// are (float or simd::BFloat16). Tiles are rows of floats, 64 bytes aligned, padded to multiples of
// kPadding. Thread: any; only what is passed is touched.

#include "loom/simd/half.h"
#include "loom/simd/versions.h"

#include <cstdint>

namespace loom::kernels::attention {

/// Queries or keys of a tile: the columns of a packed operand.
inline constexpr std::int64_t kTile = 64;
/// What tiles that are not full are padded to: the floats of the widest vector.
inline constexpr std::int64_t kPadding = 16;

/// Scores of some queries (rows) and keys (columns), as products of both.
template <class T>
struct SoftmaxTile {
  std::int64_t rows, columns;
  std::int64_t padded;   ///< columns of `weights`, which are 0 from `columns` on
  std::int64_t visible;  ///< keys that the first row sees
  std::int64_t more;     ///< by which each row sees more than the one before: 0 or 1
  float scale;           ///< of the products
  float* scores;         ///< overwritten
  std::int64_t scores_ld;
  const T* mask;  ///< what is added to the scaled products, or null
  std::int64_t mask_ld;
  T* weights;  ///< exp(score - maximum); `scores` itself if they are floats
  std::int64_t weights_ld;
  float *maximum, *sum;  ///< of the rows until now
  float* results;        ///< sums of weighted values until now, or null
  std::int64_t results_ld, result_columns;
};

/// The same for gradients: rows are keys, columns queries; each row has kTile elements.
template <class T>
struct GradientTile {
  std::int64_t rows;
  std::int64_t columns;   ///< of queries, padded
  std::int64_t hidden;    ///< queries that do not see the first key; each key one more
  bool causal;            ///< else all queries see all keys
  float scale;            ///< of the products
  const float* log_sums;  ///< of the queries: log(sum(exp(score)))
  const float* products;  ///< of the queries: result x its gradient
  const float* mask;      ///< [rows][kTile], or null
  float* scores;          ///< [rows][kTile], products of both; they become weights
  float* gradients;       ///< [kTile][kTile], of the weights; they become those of the scores
  T* weights;             ///< the weights as elements; `scores` itself if they are floats
  T* score_gradients;     ///< the scores' gradients as elements; for floats `gradients` itself...
  T* packed_gradients;    ///< ... and as a right operand, with zeros after the last key; as well
};

LOOM_SIMD_DECLARE(
    template <class T> void softmax_tile(const SoftmaxTile<T>& tile) noexcept; template <class T>
    void finish_rows(T* to, std::int64_t to_ld, const float* from, std::int64_t from_ld,
                     std::int64_t rows, std::int64_t columns, const float* maximum,
                     const float* sum, float* log_sums) noexcept;
    template <class T>
    void row_products(float* to, const T* a, std::int64_t a_ld, const T* b, std::int64_t b_ld,
                      std::int64_t rows, std::int64_t columns) noexcept;
    template <class T> void tile_weights(const GradientTile<T>& tile) noexcept;
    template <class T> void tile_gradients(const GradientTile<T>& tile) noexcept; template <class T>
    void store_rows(T* to, std::int64_t to_ld, const float* from, std::int64_t from_ld,
                    std::int64_t rows, std::int64_t columns) noexcept;
    template <class T> void turn_mask(float* to, const T* from, std::int64_t from_ld,
                                      std::int64_t rows, std::int64_t columns) noexcept;)

template <class T>
inline constexpr simd::Versions softmax_tile{LOOM_SIMD_LIST(softmax_tile<T>)};

/// to[i] = from[i] / sum[i] as elements, log_sums[i] = maximum[i] + log(sum[i]); 0 for a row that
/// sees nothing.
template <class T>
inline constexpr simd::Versions finish_rows{LOOM_SIMD_LIST(finish_rows<T>)};

/// to[i] = row i of a x row i of b.
template <class T>
inline constexpr simd::Versions row_products{LOOM_SIMD_LIST(row_products<T>)};

/// Scores to weights: `scores` and `weights`.
template <class T>
inline constexpr simd::Versions tile_weights{LOOM_SIMD_LIST(tile_weights<T>)};

/// Gradients of weights to those of scores: `gradients`, `score_gradients`, `packed_gradients`.
template <class T>
inline constexpr simd::Versions tile_gradients{LOOM_SIMD_LIST(tile_gradients<T>)};

/// to[i] = from[i] as elements.
template <class T>
inline constexpr simd::Versions store_rows{LOOM_SIMD_LIST(store_rows<T>)};

/// Turns rows of a mask into columns of a GradientTile's; what is beside them is 0.
template <class T>
inline constexpr simd::Versions turn_mask{LOOM_SIMD_LIST(turn_mask<T>)};

}  // namespace loom::kernels::attention
