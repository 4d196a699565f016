// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Dilated windows see pixels that lie some rows and columns apart. Those are images of their own,
// of which the windows are dense, so that Winograd's algorithm does for them, too. Thread: the
// caller; all of it is queued.

#include "loom/ops/recipes/convolution/convolution_blocks.h"

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace loom::ops {

/// How images are taken apart: into y times x for each.
class ImagePhases {
 public:
  /// Nothing unless a convolution of `input` suits it.
  [[nodiscard]] static std::optional<ImagePhases> of(const at::Tensor& input,
                                                     const at::Tensor& weight,
                                                     const ConvolutionParameters& p,
                                                     bool channels_last);

  /// Of the convolution of the phases, and what it makes of them.
  [[nodiscard]] const ConvolutionParameters& parameters() const noexcept { return parameters_; }
  [[nodiscard]] at::DimVector result_sizes(const at::Tensor& phases,
                                           const at::Tensor& weight) const;

  /// Images of pixels that lie y rows and x columns apart, zeros beside those that there are.
  [[nodiscard]] at::Tensor apart(const at::Tensor& images) const;
  /// Puts what apart() makes of images of its sizes into `images`.
  void together(const at::Tensor& images, const at::Tensor& phases) const;

 private:
  ImagePhases() = default;

  std::int64_t y_ = 1, x_ = 1, more_rows_ = 0, more_columns_ = 0;
  bool channels_last_ = false;
  ConvolutionParameters parameters_;
};

}  // namespace loom::ops
