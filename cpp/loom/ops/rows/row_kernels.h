// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Softmax, layer norm, the sums of batch norm, pooling and Adam's steps, one row at a time, in
// float whatever the elements are. Rows are dense. Thread: any.

#include <cstdint>

namespace loom::ops {

/// One step of Adam or AdamW for some elements of a parameter (torch.optim.AdamW has the formulas).
struct AdamUpdate {
  float* parameter;
  const float* gradient;
  float *mean, *square;  ///< the running ones, which are updated
  float beta1, beta2, eps;
  float mean_weight, square_weight;  ///< of the gradient: 1 - beta1, 1 - beta2
  float step_size;                   ///< the learning rate over 1 - beta1^step
  float root_factor;                 ///< 1 / sqrt(1 - beta2^step)
  float decay;                       ///< of the parameter, by multiplication: 1 for none
  float gradient_decay;              ///< what of the parameter is added to the gradient
  bool maximize;
};

/// The window of a pooling, and the planes that it goes over and makes.
struct PoolWindow {
  struct Side {
    std::int64_t from, to;  ///< elements of the input and of the result
    std::int64_t kernel, stride, padding, dilation;
    std::int64_t pitch;  ///< a stride apart, elements that windows may see: see max_pool()
  };
  Side rows, columns;
};

/// Kernels for one dtype of elements. Scratch: room for a row of floats, 64 bytes aligned.
struct RowKernels {
  using Softmax = void (*)(void* to, const void* from, float* scratch, std::int64_t columns);
  using SoftmaxGradient = void (*)(void* to, const void* grad, const void* output,
                                   std::int64_t columns);

  Softmax softmax, log_softmax;
  SoftmaxGradient softmax_gradient, log_softmax_gradient;
  /// to = (from - mean) * rstd * weight + bias. `statistics` gets mean and rstd.
  void (*layer_norm)(void* to, const void* from, const float* weight, const float* bias,
                     float* scratch, std::int64_t columns, double eps, float* statistics);
  /// Adds the row's share to the gradients of the parameters, unless both are null; nor is the
  /// row's own gradient made for null.
  void (*layer_norm_gradient)(void* to, const void* grad, const void* from, const float* weight,
                              std::int64_t columns, const float* statistics, float* weight_gradient,
                              float* bias_gradient);

  /// Sums for batch norm over runs of `columns` elements that lie together, `runs` of them `stride`
  /// elements apart: of the elements, of the squares of from - mean, of grad and of
  /// grad * (from - mean).
  double (*sum)(const void* from, std::int64_t runs, std::int64_t stride, std::int64_t columns);
  double (*square_sum)(const void* from, std::int64_t runs, std::int64_t stride,
                       std::int64_t columns, float mean);
  void (*gradient_sums)(const void* grad, const void* from, std::int64_t runs, std::int64_t stride,
                        std::int64_t columns, float mean, double* sums);
  /// The same where a row has an element of each channel: what it adds to each channel's sums.
  void (*add_moments)(const void* from, const float* shift, float* sums, float* squares,
                      std::int64_t columns);
  void (*add_gradients)(const void* grad, const void* from, const float* means, float* sums,
                        float* products, std::int64_t columns);

  /// Adds rows, `stride` elements apart, to the sums of their columns.
  void (*add_rows)(const void* from, std::int64_t rows, std::int64_t stride, float* sums,
                   std::int64_t columns);

  /// The least and the largest element; both are NaN if one is.
  void (*extrema)(const void* from, std::int64_t columns, float* least, float* most);
  /// The sum of all elements that are not NaN.
  double (*sum_of_numbers)(const void* from, std::int64_t columns);
  /// The inner product of two rows.
  double (*product_sum)(const void* a, const void* b, std::int64_t columns);

  void (*to_float)(float* to, const void* from, std::int64_t count);

  /// The largest elements of a plane and their places in it; a NaN is larger than all. Scratch:
  /// room for two rows of the result.
  void (*max_pool)(const PoolWindow& window, void* to, std::int64_t* places, const void* from,
                   float* scratch);

  /// float only: null for others.
  void (*adam)(const AdamUpdate& update, std::int64_t count);
};

enum class RowElement { kFloat, kBFloat16 };

/// For the widest instructions that the process may use.
[[nodiscard]] const RowKernels& row_kernels(RowElement element) noexcept;

namespace detail {

/// One for each element type, in the order of RowElement; null where the build has none.
[[nodiscard]] const RowKernels* scalar_row_kernels() noexcept;
[[nodiscard, gnu::weak]] const RowKernels* avx2_row_kernels() noexcept;
[[nodiscard, gnu::weak]] const RowKernels* avx512_row_kernels() noexcept;

}  // namespace detail
}  // namespace loom::ops
