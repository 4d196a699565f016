// SPDX-License-Identifier: BSD-3-Clause
// Matrices that are made from nothing: eye and the indices of triangles.
#include "loom/backend/device_state.h"
#include "loom/backend/registration.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/native/TensorFactories.h>
#include <ATen/ops/tril_indices_native.h>
#include <ATen/ops/triu_indices_native.h>
#include <torch/library.h>

namespace loom::ops {
namespace {

at::Tensor& eye_rectangle_out(std::int64_t n, std::int64_t m, at::Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  result.resize_({n, m});
  result.zero_();
  result.diagonal().fill_(1);
  return result;
}

at::Tensor& eye_out(std::int64_t n, at::Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  return eye_rectangle_out(n, n, result);
}

using TriangleIndices = at::Tensor(std::int64_t, std::int64_t, std::int64_t,
                                   std::optional<c10::ScalarType>, std::optional<c10::Layout>,
                                   std::optional<c10::Device>, std::optional<bool>);

template <TriangleIndices* kCpu>
at::Tensor triangle_indices(const char* name, std::int64_t count, std::int64_t row,
                            std::int64_t column, std::int64_t offset,
                            std::optional<c10::ScalarType> dtype,
                            std::optional<c10::Device> device) {
  // A dtype that it does not know is an error of this call.
  (void)kCpu(0, 0, 0, dtype, c10::kStrided, c10::Device(c10::kCPU), false);
  const c10::Device on =
      to_c10(resolve_device(device ? device->index() : c10::DeviceIndex{-1}, "empty"));
  at::Tensor result = empty({2, count}, dtype.value_or(c10::kLong), on);
  if (count == 0) return result;
  const auto kernel = [](const at::Tensor& to, std::int64_t rows, std::int64_t columns,
                         std::int64_t from) {
    to.copy_(
        kCpu(rows, columns, from, to.scalar_type(), c10::kStrided, c10::Device(c10::kCPU), false));
  };
  launch(name, Whole{}, kernel, out(result), row, column, offset);
  return result;
}

at::Tensor tril_indices(std::int64_t row, std::int64_t column, std::int64_t offset,
                        std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                        std::optional<c10::Device> device, std::optional<bool> /*pin_memory*/) {
  at::native::check_args(row, column, layout);
  return triangle_indices<at::native::tril_indices_cpu>(
      "tril_indices", at::native::get_tril_size(row, column, offset), row, column, offset, dtype,
      device);
}

at::Tensor triu_indices(std::int64_t row, std::int64_t column, std::int64_t offset,
                        std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                        std::optional<c10::Device> device, std::optional<bool> /*pin_memory*/) {
  at::native::check_args(row, column, layout);
  const std::int64_t count = row * column - at::native::get_tril_size(row, column, offset - 1);
  return triangle_indices<at::native::triu_indices_cpu>("triu_indices", count, row, column, offset,
                                                        dtype, device);
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("eye.out", TORCH_FN(eye_out));
  m.impl("eye.m_out", TORCH_FN(eye_rectangle_out));
  m.impl("tril_indices", TORCH_FN(tril_indices));
  m.impl("triu_indices", TORCH_FN(triu_indices));
}

}  // namespace loom::ops
