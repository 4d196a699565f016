// SPDX-License-Identifier: BSD-3-Clause
// Calls the operators from C++, with no Python: on the CPU and on loom, and backward through them.
// Exits with 1 when the two devices disagree.

#include "loom/loom.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>

#include "custom_ops.h"
#include <cstdio>

namespace {

bool report(const char* what, const at::Tensor& cpu, const at::Tensor& loom) {
  const bool same = loom.device().type() == c10::kPrivateUse1 &&
                    at::allclose(loom.cpu(), cpu, /*rtol=*/1e-4, /*atol=*/1e-4);
  std::printf("%-24s %s\n", what, same ? "as on the CPU" : "NOT as on the CPU");
  return same;
}

}  // namespace

int main() {
  loom::init();
  const c10::Device device("loom");
  const at::Tensor a = at::rand({300, 200});
  const at::Tensor b = at::rand({200, 100});
  const at::Tensor row = at::rand({200});
  const at::Tensor there = a.to(device).requires_grad_();

  bool same = report("sum", custom_ops::myadd(a, row), custom_ops::myadd(there, row.to(device)));
  const at::Tensor product = custom_ops::mymatmul(there, b.to(device));
  same = report("product", custom_ops::mymatmul(a, b), product) && same;
  product.sum().backward();
  same = report("gradient of a product", b.sum(1).expand({300, 200}), there.grad()) && same;
  return same ? 0 : 1;
}
