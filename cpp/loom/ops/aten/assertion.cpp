// SPDX-License-Identifier: BSD-3-Clause
// Whether values are what they should be: comparisons whose answer the host waits for, and
// assertions, which fail at the next synchronisation.
#include "loom/backend/registration.h"
#include "loom/ops/launch/launch.h"

#include <ATen/ops/all.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/is_nonzero.h>
#include <torch/library.h>

#include <string_view>

namespace loom::ops {
namespace {

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Cannot compare two tensors on different devices. Got: ", self.device(), " and ",
              other.device());
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ",
              self.scalar_type(), " but got data type ", other.scalar_type(),
              " for argument 'other' in call to equal");
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  return at::all(at::eq(self, other)).item<bool>();
}

void assert_async_message(const at::Tensor& self, std::string_view message) {
  const auto kernel = [](const at::Tensor& value, std::string_view text) {
    TORCH_CHECK(at::is_nonzero(value), text);
  };
  launch_on(self.device(), "_assert_async", Whole{}, kernel, self, message);
}

void assert_async(const at::Tensor& self) {
  assert_async_message(self, "Expected Tensor with single nonzero value, but got zero");
}

}  // namespace

LOOM_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("equal", TORCH_FN(equal));
  m.impl("_assert_async", TORCH_FN(assert_async));
  m.impl("_assert_async.msg", TORCH_FN(assert_async_message));
}

}  // namespace loom::ops
