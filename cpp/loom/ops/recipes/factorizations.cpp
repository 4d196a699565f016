// SPDX-License-Identifier: BSD-3-Clause
// LU, QR and Cholesky factorisations of large matrices, and systems of equations, on all cores of
// the device, as ATen's kernels for any device ask their stubs for. Thread: any; the algorithms run
// on the worker.
//
// All are blocked (Golub and Van Loan, Matrix Computations, 3.2.11, 4.2.9, 5.2.3): a panel of
// columns is factorised by LAPACK on one core, and then applied to the columns behind it, whose
// slices are blocks of a grid. The first block takes the columns of the next panel and factorises
// them, while the others are busy with the rest (look-ahead). Panels and slices follow from shapes
// only, so the bits do not depend on the number of cores.
#include "loom/ops/recipes/factorizations.h"

#include "loom/backend/registration.h"
#include "loom/device/scratch.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/launch/launch.h"

#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/TransposeType.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/geqrf_native.h>
#include <ATen/ops/linalg_householder_product_native.h>
#include <ATen/ops/linalg_solve_triangular_native.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>

namespace loom::ops {
namespace {

namespace native = at::native;

// Columns of a panel: LAPACK's own block size for matrices this large is 32 to 64, and a product
// with 64 inner elements runs near its full rate.
constexpr std::int64_t kPanelColumns = 64;
// Columns of a slice: of some 16 slices, since each packs the panel anew, but few enough that a
// slice stays in the second-level cache.
constexpr std::int64_t kShortestSlice = 64, kLongestSlice = 256, kSlices = 16;

const Scratch kReflectors, kProduct, kWork;

std::int64_t slice_length(std::int64_t columns) {
  const std::int64_t length = ceil_div(columns, kSlices * kShortestSlice) * kShortestSlice;
  return std::min(length, kLongestSlice);
}

/// A matrix whose columns lie one after the other, or a part of one.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 1;

  [[nodiscard]] T* at(std::int64_t row, std::int64_t column) const {
    return data + row + column * stride;
  }
  [[nodiscard]] Matrix part(std::int64_t row, std::int64_t column, std::int64_t to_row,
                            std::int64_t to_column) const {
    return {at(row, column), to_row - row, to_column - column, stride};
  }
  [[nodiscard]] at::Tensor tensor(bool transposed = false) const {
    std::int64_t sizes[] = {rows, columns}, strides[] = {1, stride};
    if (transposed) {
      std::swap(sizes[0], sizes[1]);
      std::swap(strides[0], strides[1]);
    }
    return make_alias({.data = reinterpret_cast<std::byte*>(data),
                       .sizes = sizes,
                       .strides = strides,
                       .dtype = c10::CppTypeToScalarType<T>::value});
  }
};

/// The matrices of a batch, one after the other. Requires: as ATen gives them to its stubs, whose
/// results are dense, column after column.
template <class T>
Matrix<T> matrix_of(const TensorRef& tensor, std::int64_t index) {
  const auto sizes = tensor.sizes();
  const std::int64_t rows = sizes[sizes.size() - 2], columns = sizes[sizes.size() - 1];
  return {reinterpret_cast<T*>(tensor.data()) + index * rows * columns, rows, columns,
          std::max<std::int64_t>(1, rows)};
}

/// Calls body(matrix, index) for each matrix of a batch.
template <class Body>
void for_matrices(const TensorRef& tensor, const Body& body) {
  std::int64_t batch = 1;
  for (std::int64_t d = 0; d < tensor.dim() - 2; ++d) batch *= tensor.sizes()[d];
  for (std::int64_t i = 0; i < batch; ++i) {
    if (tensor.dtype() == c10::kFloat) {
      body(matrix_of<float>(tensor, i), i);
    } else {
      body(matrix_of<double>(tensor, i), i);
    }
  }
}

/// The numbers that go with a matrix of the batch.
template <class T>
T* numbers_of(const TensorRef& tensor, std::int64_t index, std::int64_t each) {
  return reinterpret_cast<T*>(tensor.data()) + index * each;
}

/// to -= left * right, or transposed(left) * right.
template <class T>
void subtract_product(const Matrix<T>& to, const Matrix<T>& left, const at::Tensor& right,
                      bool left_transposed = false) {
  if (to.rows == 0 || to.columns == 0) return;
  at::Tensor result = to.tensor();
  at::cpu::addmm_(result, left.tensor(left_transposed), right, /*beta=*/1, /*alpha=*/-1);
}

/// Calls prepare(0); then for every panel, apply(panel, begin, end) for slices of the columns
/// behind it, beside prepare(panel + 1) once its columns are done. `width` is the number of columns
/// that panels cover, of `columns`.
template <class Prepare, class Apply>
void factorize(Grid& grid, std::int64_t width, std::int64_t columns, const Prepare& prepare,
               const Apply& apply) {
  const std::int64_t slice = slice_length(columns);
  const auto end_of = [&](std::int64_t panel) {
    return std::min((panel + 1) * kPanelColumns, width);
  };
  prepare(0, end_of(0));
  for (std::int64_t begin = 0; begin < width; begin += kPanelColumns) {
    const std::int64_t panel = begin / kPanelColumns, end = end_of(panel);
    if (end == columns) break;
    const std::int64_t next = end < width ? end_of(panel + 1) : end;
    grid.run(1 + ceil_div(columns - next, slice), [&](std::int64_t block) {
      if (block == 0) {
        if (next == end) return;
        apply(begin, end, end, next);
        prepare(end, next);
      } else {
        const std::int64_t first = next + (block - 1) * slice;
        apply(begin, end, first, std::min(first + slice, columns));
      }
    });
  }
}

// --- LU ----------------------------------------------------------------------------------------

/// Exchanges the rows of some columns as the pivots [begin, end) say, which count from one.
template <class T>
void exchange_rows(const Matrix<T>& a, const int* pivots, std::int64_t begin, std::int64_t end) {
  for (std::int64_t column = 0; column < a.columns; ++column) {
    T* const elements = a.at(0, column);
    for (std::int64_t row = begin; row < end; ++row) {
      std::swap(elements[row], elements[pivots[row] - 1]);
    }
  }
}

/// Returns which element of the diagonal of U is the first zero, counted from one, or 0.
template <class T>
int lu(Grid& grid, const Matrix<T>& a, int* pivots) {
  const std::int64_t width = std::min(a.rows, a.columns);
  int first_zero = 0;  // written by whoever has the panel, one after the other
  factorize(
      grid, width, a.columns,
      [&](std::int64_t begin, std::int64_t end) {
        int info = 0;
        native::lapackLu<T>(static_cast<int>(a.rows - begin), static_cast<int>(end - begin),
                            a.at(begin, begin), static_cast<int>(a.stride), pivots + begin, &info);
        for (std::int64_t i = begin; i < end; ++i) pivots[i] += static_cast<int>(begin);
        if (info != 0 && first_zero == 0) first_zero = info + static_cast<int>(begin);
      },
      [&](std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last) {
        exchange_rows(a.part(0, first, a.rows, last), pivots, begin, end);
        const Matrix<T> upper = a.part(begin, first, end, last);
        native::blasTriangularSolve<T>('L', 'L', 'N', 'U', static_cast<int>(end - begin),
                                       static_cast<int>(last - first), a.at(begin, begin),
                                       static_cast<int>(a.stride), upper.data,
                                       static_cast<int>(upper.stride));
        subtract_product(a.part(end, first, a.rows, last), a.part(end, begin, a.rows, end),
                         upper.tensor());
      });
  // The columns of each panel lack the exchanges of the panels behind it.
  grid.run(ceil_div(width, kPanelColumns), [&](std::int64_t panel) {
    const std::int64_t begin = panel * kPanelColumns, end = std::min(begin + kPanelColumns, width);
    exchange_rows(a.part(0, begin, a.rows, end), pivots, end, width);
  });
  return first_zero;
}

struct Lu {
  void operator()(Grid& grid, const TensorRef& factors, const TensorRef& pivots,
                  const TensorRef& infos) const {
    for_matrices(factors, [&]<class T>(const Matrix<T>& a, std::int64_t i) {
      *numbers_of<int>(infos, i, 1) =
          lu(grid, a, numbers_of<int>(pivots, i, std::min(a.rows, a.columns)));
    });
  }
};

struct LuSolve {
  void operator()(Grid& grid, const TensorRef& right, const TensorRef& factors,
                  const TensorRef& pivots, char transposed) const {
    for_matrices(right, [&]<class T>(const Matrix<T>& b, std::int64_t i) {
      const auto a = matrix_of<T>(factors, i);
      int* const exchanged = numbers_of<int>(pivots, i, a.rows);
      grid.run(ceil_div(b.columns, kShortestSlice), [&](std::int64_t block) {
        const std::int64_t begin = block * kShortestSlice;
        const std::int64_t length = std::min(kShortestSlice, b.columns - begin);
        int info = 0;
        native::lapackLuSolve<T>(transposed, static_cast<int>(a.rows), static_cast<int>(length),
                                 a.data, static_cast<int>(a.stride), exchanged, b.at(0, begin),
                                 static_cast<int>(b.stride), &info);
      });
    });
  }
};

struct TriangularSolve {
  bool left = true, upper = false, unit = false;
  char transposed = 'N';

  void operator()(Grid& grid, const TensorRef& right, const TensorRef& triangle) const {
    for_matrices(right, [&]<class T>(const Matrix<T>& b, std::int64_t i) {
      const auto a = matrix_of<T>(triangle, i);
      const std::int64_t apart = left ? b.columns : b.rows;
      grid.run(ceil_div(apart, kShortestSlice), [&](std::int64_t block) {
        const std::int64_t begin = block * kShortestSlice;
        const std::int64_t end = std::min(begin + kShortestSlice, apart);
        const Matrix<T> part =
            left ? b.part(0, begin, b.rows, end) : b.part(begin, 0, end, b.columns);
        native::blasTriangularSolve<T>(
            left ? 'L' : 'R', upper ? 'U' : 'L', transposed, unit ? 'U' : 'N',
            static_cast<int>(part.rows), static_cast<int>(part.columns), a.data,
            static_cast<int>(a.stride), part.data, static_cast<int>(part.stride));
      });
    });
  }
};

// --- Cholesky ----------------------------------------------------------------------------------

/// Of the lower triangle. Returns the order of the first minor that is not positive, from which on
/// there is no factor, or 0.
template <class T>
int cholesky(Grid& grid, const Matrix<T>& a) {
  int failed = 0;
  factorize(
      grid, a.columns, a.columns,
      [&](std::int64_t begin, std::int64_t end) {
        if (failed != 0) return;
        int info = 0;
        native::lapackCholesky<T>('L', static_cast<int>(end - begin), a.at(begin, begin),
                                  static_cast<int>(a.stride), &info);
        if (info != 0) failed = info + static_cast<int>(begin);
        if (info != 0 || end == a.rows) return;
        native::blasTriangularSolve<T>('R', 'L', 'T', 'N', static_cast<int>(a.rows - end),
                                       static_cast<int>(end - begin), a.at(begin, begin),
                                       static_cast<int>(a.stride), a.at(end, begin),
                                       static_cast<int>(a.stride));
      },
      [&](std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last) {
        subtract_product(a.part(first, first, a.rows, last), a.part(first, begin, a.rows, end),
                         a.part(first, begin, last, end).tensor(/*transposed=*/true));
      });
  return failed;
}

struct Cholesky {
  void operator()(Grid& grid, const TensorRef& matrices, const TensorRef& infos) const {
    for_matrices(matrices, [&]<class T>(const Matrix<T>& a, std::int64_t i) {
      *numbers_of<int>(infos, i, 1) = cholesky(grid, a);
    });
  }
};

// --- QR ----------------------------------------------------------------------------------------

/// The reflections of a panel as one product, I - V T transposed(V) (Schreiber and Van Loan, A
/// storage-efficient WY representation, 1989): V has ones on its diagonal and zeros above, T is an
/// upper triangle.
template <class T>
struct Reflections {
  Matrix<T> vectors, factor;
};

/// Two panels' room: one is applied while the next is prepared.
template <class T>
class ReflectionRoom {
 public:
  explicit ReflectionRoom(std::int64_t rows)
      : rows_(rows), room_(kReflectors.get<T>(2 * (rows + 2 * kPanelColumns) * kPanelColumns)) {}

  /// Of the columns [begin, end) of a panel that LAPACK has factorised.
  void take(const Matrix<T>& a, const T* scales, std::int64_t begin, std::int64_t end) {
    Reflections<T> made = of(begin, end);
    const std::int64_t count = end - begin;
    for (std::int64_t j = 0; j < count; ++j) {
      T* const to = made.vectors.at(0, j);
      std::fill_n(to, j, T(0));
      to[j] = 1;
      std::copy(a.at(begin + j + 1, begin + j), a.at(0, begin + j) + a.rows, to + j + 1);
    }
    const Matrix<T> dots{made.factor.data + kPanelColumns * kPanelColumns, count, count,
                         kPanelColumns};
    at::Tensor result = dots.tensor();
    at::cpu::mm_out(result, made.vectors.tensor(/*transposed=*/true), made.vectors.tensor());
    for (std::int64_t j = 0; j < count; ++j) {
      const T scale = scales[begin + j];
      for (std::int64_t i = 0; i < count; ++i) *made.factor.at(i, j) = 0;
      for (std::int64_t k = 0; k < j; ++k) {
        const T dot = -scale * *dots.at(k, j);
        for (std::int64_t i = 0; i <= k; ++i) *made.factor.at(i, j) += *made.factor.at(i, k) * dot;
      }
      *made.factor.at(j, j) = scale;
    }
  }

  /// Multiplies columns from the left with the product of the reflections of [begin, end), or with
  /// its transposed one: to -= V op(T) (transposed(V) to).
  void apply(const Matrix<T>& to, std::int64_t begin, std::int64_t end, bool transposed) const {
    const Reflections<T> made = of(begin, end);
    const std::int64_t count = end - begin;
    T* const room = kProduct.get<T>(2 * count * to.columns);
    const Matrix<T> dots{room, count, to.columns, count};
    const Matrix<T> scaled{room + count * to.columns, count, to.columns, count};
    at::Tensor dots_tensor = dots.tensor(), scaled_tensor = scaled.tensor();
    at::cpu::mm_out(dots_tensor, made.vectors.tensor(/*transposed=*/true), to.tensor());
    at::cpu::mm_out(scaled_tensor, made.factor.tensor(transposed), dots_tensor);
    subtract_product(to, made.vectors, scaled_tensor);
  }

 private:
  [[nodiscard]] Reflections<T> of(std::int64_t begin, std::int64_t end) const {
    T* const start =
        room_ + (begin / kPanelColumns) % 2 * (rows_ + 2 * kPanelColumns) * kPanelColumns;
    const std::int64_t count = end - begin;
    return {{start, rows_ - begin, count, rows_},
            {start + rows_ * kPanelColumns, count, count, kPanelColumns}};
  }

  const std::int64_t rows_;
  T* const room_;
};

template <class T>
void qr(Grid& grid, const Matrix<T>& a, T* scales) {
  ReflectionRoom<T> room(a.rows);
  factorize(
      grid, std::min(a.rows, a.columns), a.columns,
      [&](std::int64_t begin, std::int64_t end) {
        const auto rows = static_cast<int>(a.rows - begin), count = static_cast<int>(end - begin);
        T best = 0;
        int info = 0;
        native::lapackGeqrf<T>(rows, count, a.at(begin, begin), static_cast<int>(a.stride),
                               scales + begin, &best, -1, &info);
        const int length = std::max({1, count, static_cast<int>(best)});
        native::lapackGeqrf<T>(rows, count, a.at(begin, begin), static_cast<int>(a.stride),
                               scales + begin, kWork.get<T>(length), length, &info);
        if (end < a.columns) room.take(a, scales, begin, end);
      },
      [&](std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last) {
        room.apply(a.part(begin, first, a.rows, last), begin, end, /*transposed=*/true);
      });
}

/// The first columns of the product of `count` reflections, in the place of their vectors: from the
/// last panel to the first, applied to what has become of the identity's columns.
template <class T>
void make_q(Grid& grid, const Matrix<T>& a, const T* scales, std::int64_t count) {
  ReflectionRoom<T> room(a.rows);
  const auto set_identity = [&](std::int64_t column) {
    std::fill_n(a.at(0, column), a.rows, T(0));
    *a.at(column, column) = 1;
  };
  for (std::int64_t column = count; column < a.columns; ++column) set_identity(column);
  if (count == 0) return;
  const std::int64_t slice = slice_length(a.columns), last_panel = (count - 1) / kPanelColumns;
  const auto end_of = [&](std::int64_t panel) {
    return std::min((panel + 1) * kPanelColumns, count);
  };
  room.take(a, scales, last_panel * kPanelColumns, count);
  for (std::int64_t panel = last_panel; panel >= 0; --panel) {
    const std::int64_t begin = panel * kPanelColumns, end = end_of(panel);
    grid.run(1 + ceil_div(a.columns - begin, slice), [&](std::int64_t block) {
      if (block == 0) {  // whose vectors no other block touches
        if (panel > 0) room.take(a, scales, begin - kPanelColumns, begin);
        return;
      }
      const std::int64_t first = begin + (block - 1) * slice;
      const std::int64_t last = std::min(first + slice, a.columns);
      for (std::int64_t column = first; column < std::min(last, end); ++column) {
        set_identity(column);
      }
      room.apply(a.part(begin, first, a.rows, last), begin, end, /*transposed=*/false);
    });
  }
}

struct Qr {
  void operator()(Grid& grid, const TensorRef& matrices, const TensorRef& scales) const {
    for_matrices(matrices, [&]<class T>(const Matrix<T>& a, std::int64_t i) {
      qr(grid, a, numbers_of<T>(scales, i, scales.sizes().back()));
    });
  }
};

struct MakeQ {
  void operator()(Grid& grid, const TensorRef& matrices, const TensorRef& scales) const {
    for_matrices(matrices, [&]<class T>(const Matrix<T>& a, std::int64_t i) {
      const std::int64_t count = scales.sizes().back();
      make_q(grid, a, numbers_of<T>(scales, i, count), count);
    });
  }
};

// --- What ATen asks for ------------------------------------------------------------------------

void lu_factor_stub(const at::Tensor& a, const at::Tensor& pivots, const at::Tensor& infos,
                    bool pivot) {
  TORCH_CHECK(pivot, "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
  launch_on(a.device(), "linalg_lu_factor_ex", Custom{}, Lu{}, inout(a), out(pivots), out(infos));
}

void lu_solve_stub(const at::Tensor& factors, const at::Tensor& pivots, const at::Tensor& right,
                   native::TransposeType transposed) {
  launch_on(right.device(), "linalg_lu_solve", Custom{}, LuSolve{}, inout(right), factors, pivots,
            native::to_blas(transposed));
}

void triangular_solve_stub(const at::Tensor& triangle, const at::Tensor& right, bool left,
                           bool upper, native::TransposeType transposed, bool unit) {
  launch_on(right.device(), "linalg_solve_triangular", Custom{},
            TriangularSolve{left, upper, unit, native::to_blas(transposed)}, inout(right),
            triangle);
}

void cholesky_stub(const at::Tensor& a, const at::Tensor& infos, bool upper) {
  if (upper) {  // the lower triangle of the transposed matrix
    const at::Tensor lower = a.clone(at::MemoryFormat::Contiguous).mT();
    cholesky_stub(lower, infos, /*upper=*/false);
    a.copy_(lower.mT());
    return;
  }
  launch_on(a.device(), "linalg_cholesky_ex", Custom{}, Cholesky{}, inout(a), out(infos));
}

void geqrf_stub(const at::Tensor& a, const at::Tensor& scales) {
  launch_on(a.device(), "geqrf", Custom{}, Qr{}, inout(a), out(scales));
}

at::Tensor& orgqr_stub(at::Tensor& a, const at::Tensor& scales) {
  launch_on(a.device(), "linalg_householder_product", Custom{}, MakeQ{}, inout(a), scales);
  return a;
}

// --- Operators that ATen has no structured form of ---------------------------------------------

std::tuple<at::Tensor, at::Tensor> geqrf(const at::Tensor& self) {
  if (is_large_matrix(self)) {
    at::Tensor reflections = at::empty({0}, self.options()),
               scales = at::empty({0}, self.options());
    native::geqrf_out(self, reflections, scales);
    return {reflections, scales};
  }
  return call_fallback<std::tuple<at::Tensor, at::Tensor>, const at::Tensor&>("aten::geqrf", "",
                                                                              self);
}

at::Tensor householder_product(const at::Tensor& self, const at::Tensor& scales) {
  if (is_large_matrix(self)) {
    at::Tensor product = at::empty({0}, self.options());
    return native::linalg_householder_product_out(self, scales, product);
  }
  return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&>(
      "aten::linalg_householder_product", "", self, scales);
}

/// As those of one matrix: stubs take no batch that broadcasts.
at::Tensor solve_triangular(const at::Tensor& self, const at::Tensor& right, bool upper, bool left,
                            bool unitriangular) {
  if (is_large_matrix(self) && self.dim() == 2 && right.dim() == 2 &&
      self.device() == right.device()) {
    return native::linalg_solve_triangular(self, right, upper, left, unitriangular);
  }
  return call_fallback<at::Tensor, const at::Tensor&, const at::Tensor&, bool, bool, bool>(
      "aten::linalg_solve_triangular", "", self, right, upper, left, unitriangular);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("geqrf", TORCH_FN(geqrf));
  m.impl("linalg_householder_product", TORCH_FN(householder_product));
  m.impl("linalg_solve_triangular", TORCH_FN(solve_triangular));
}

}  // namespace loom::ops

namespace at::native {
[[maybe_unused]] static const bool loom_factorizations = loom::register_at_load([] {
  REGISTER_PRIVATEUSE1_DISPATCH(lu_factor_stub, &loom::ops::lu_factor_stub)
  REGISTER_PRIVATEUSE1_DISPATCH(lu_solve_stub, &loom::ops::lu_solve_stub)
  REGISTER_PRIVATEUSE1_DISPATCH(triangular_solve_stub, &loom::ops::triangular_solve_stub)
  REGISTER_PRIVATEUSE1_DISPATCH(cholesky_stub, &loom::ops::cholesky_stub)
  REGISTER_PRIVATEUSE1_DISPATCH(geqrf_stub, &loom::ops::geqrf_stub)
  REGISTER_PRIVATEUSE1_DISPATCH(orgqr_stub, &loom::ops::orgqr_stub)
});
}  // namespace at::native
