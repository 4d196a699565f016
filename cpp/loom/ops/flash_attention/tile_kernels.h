// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What attention does with a tile of scores between two products, in float whatever the elements
// are (float or bfloat16). Tiles are rows of floats, 64 bytes aligned, padded to multiples of
// kPadding.
// Thread: any.

#include <cstdint>

namespace loom::ops {

/// Queries or keys of a tile: the columns of a packed operand.
inline constexpr std::int64_t kTile = 64;
/// What tiles that are not full are padded to: the floats of the widest vector.
inline constexpr std::int64_t kPadding = 16;

/// Scores of some queries (rows) and keys (columns), as products of both.
struct SoftmaxTile {
  std::int64_t rows, columns;
  std::int64_t padded;   ///< columns of `weights`, which are 0 from `columns` on
  std::int64_t visible;  ///< keys that the first row sees
  std::int64_t more;     ///< by which each row sees more than the one before: 0 or 1
  float scale;           ///< of the products
  float* scores;         ///< overwritten
  std::int64_t scores_ld;
  const void* mask;  ///< what is added to the scaled products: elements, or null
  std::int64_t mask_ld;
  void* weights;  ///< exp(score - maximum): elements; `scores` itself if they are floats
  std::int64_t weights_ld;
  float *maximum, *sum;  ///< of the rows until now
  float* results;        ///< sums of weighted values until now, or null
  std::int64_t results_ld, result_columns;
};

/// The same for gradients: rows are keys, columns queries; each row has kTile elements.
struct GradientTile {
  std::int64_t rows;
  std::int64_t columns;    ///< of queries, padded
  std::int64_t hidden;     ///< queries that do not see the first key; each key one more
  bool causal;             ///< else all queries see all keys
  float scale;             ///< of the products
  const float* log_sums;   ///< of the queries: log(sum(exp(score)))
  const float* products;   ///< of the queries: result x its gradient
  const float* mask;       ///< [rows][kTile], or null
  float* scores;           ///< [rows][kTile], products of both; they become weights
  float* gradients;        ///< [kTile][kTile], of the weights; they become those of the scores
  void* weights;           ///< the weights as elements
  void* score_gradients;   ///< the scores' gradients as elements...
  void* packed_gradients;  ///< ... and as a right operand, with zeros after the last key
};

/// Kernels for one dtype of elements.
struct AttentionKernels {
  void (*softmax)(const SoftmaxTile& tile);
  /// to[i] = from[i] / sum[i] as elements, log_sums[i] = maximum[i] + log(sum[i]); 0 for a row that
  /// sees nothing.
  void (*finish)(void* to, std::int64_t to_ld, const float* from, std::int64_t from_ld,
                 std::int64_t rows, std::int64_t columns, const float* maximum, const float* sum,
                 float* log_sums);
  /// to[i] = row i of a x row i of b.
  void (*row_products)(float* to, const void* a, std::int64_t a_ld, const void* b,
                       std::int64_t b_ld, std::int64_t rows, std::int64_t columns);
  /// Scores to weights: `scores` and `weights`.
  void (*weights)(const GradientTile& tile);
  /// Gradients of weights to those of scores: `gradients`, `score_gradients`, `packed_gradients`.
  void (*gradients)(const GradientTile& tile);
  /// to[i] = from[i] as elements.
  void (*store)(void* to, std::int64_t to_ld, const float* from, std::int64_t from_ld,
                std::int64_t rows, std::int64_t columns);
};

template <class T>
[[nodiscard]] const AttentionKernels& attention_kernels() noexcept;

namespace detail {

/// For float and bfloat16; null where the build has none.
[[nodiscard]] const AttentionKernels* scalar_attention_kernels() noexcept;
[[nodiscard, gnu::weak]] const AttentionKernels* avx2_attention_kernels() noexcept;
[[nodiscard, gnu::weak]] const AttentionKernels* avx512_attention_kernels() noexcept;

}  // namespace detail
}  // namespace loom::ops
