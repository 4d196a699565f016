// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Cross entropy of rows of logits that have a class each, from their softmax. Templates, to be
// compiled where the types are known: T is float or double. Thread: any.

#include "loom/kernels/norm/largest.h"
#include "loom/simd/half.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace loom::kernels::norm {

/// Which class each row has; rows whose class is `ignored` do not count.
struct RowClasses {
  const std::int64_t* of_rows;
  std::int64_t count, ignored;

  [[nodiscard]] bool counts(std::int64_t row) const noexcept { return of_rows[row] != ignored; }
  [[nodiscard]] std::int64_t rows_that_count(std::int64_t rows) const noexcept {
    return rows - std::count(of_rows, of_rows + rows, ignored);
  }
  /// The first of rows [begin, end) that counts and has a class that there is not; `end` if none.
  [[nodiscard]] std::int64_t first_wrong(std::int64_t begin, std::int64_t end) const noexcept {
    while (begin < end && (!counts(begin) || (of_rows[begin] >= 0 && of_rows[begin] < count))) {
      ++begin;
    }
    return begin;
  }
};

/// Losses of rows [begin, end), 0 of those that do not count; `logits` and `softmax` begin with row
/// `begin`. With m the largest logit of a row, its loss = m + log(sum of exp(x - m)) - x[class],
/// and the largest probability is 1 / that sum. Requires: classes that there are.
template <class T>
void row_losses(const RowClasses& classes, std::int64_t begin, std::int64_t end, const T* logits,
                const T* softmax, T* losses) noexcept {
  for (std::int64_t row = begin; row < end;
       ++row, logits += classes.count, softmax += classes.count) {
    losses[row] = !classes.counts(row)
                      ? T{0}
                      : largest<T>(logits, classes.count) - logits[classes.of_rows[row]] -
                            std::log(largest<T>(softmax, classes.count));
  }
}

/// The same from each row's largest logit and its sum of exp(x - m), which begin with row `begin`,
/// too.
template <class T>
void row_losses(const RowClasses& classes, std::int64_t begin, std::int64_t end, const T* logits,
                const T* maxima, const T* sums, T* losses) noexcept {
  for (std::int64_t row = begin; row < end; ++row, logits += classes.count, ++maxima, ++sums) {
    losses[row] =
        !classes.counts(row) ? T{0} : *maxima - logits[classes.of_rows[row]] + std::log(*sums);
  }
}

/// What the gradient of each row is multiplied by; `step` is from one incoming gradient to the
/// next.
template <class T>
void row_scales(const RowClasses& classes, std::int64_t begin, std::int64_t end, const T* grads,
                std::int64_t step, T divisor, T* scales) noexcept {
  for (std::int64_t row = begin; row < end; ++row) {
    scales[row - begin] = classes.counts(row) ? grads[row * step] / divisor : T{0};
  }
}

/// gradient = softmax * scale of the row; all begin with row `begin`.
template <class Result, class T>
void scale_rows(const RowClasses& classes, std::int64_t begin, std::int64_t end, const T* softmax,
                const T* scales, Result* gradient) noexcept {
  for (std::int64_t row = begin; row < end; ++row, ++scales) {
    for (std::int64_t c = 0; c < classes.count; ++c) {
      simd::round_to(*gradient++, *softmax++ * *scales);
    }
  }
}

/// Makes the gradients of the rows' classes (softmax - 1) * scale; all begin with row `begin`.
/// Requires: classes that there are.
template <class Result, class T>
void subtract_classes(const RowClasses& classes, std::int64_t begin, std::int64_t end,
                      const T* softmax, const T* scales, Result* gradient) noexcept {
  for (std::int64_t row = begin; row < end; ++row) {
    if (!classes.counts(row)) continue;
    const std::int64_t at = (row - begin) * classes.count + classes.of_rows[row];
    simd::round_to(gradient[at], (softmax[at] - 1) * scales[row - begin]);
  }
}

}  // namespace loom::kernels::norm
