// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/aten/counted/runs.h"

#include "loom/kernels/index/equal_runs.h"
#include "loom/ops/aten/counted/blocks.h"
#include "loom/ops/launch/empty.h"

#include <ATen/Dispatch.h>

#include <string>

namespace loom::ops {
namespace {

template <class Body>
void with_elements(const TensorRef& vector, Body&& body) {
  AT_DISPATCH_ALL_TYPES_AND3(c10::kBool, c10::kHalf, c10::kBFloat16, vector.dtype(), "unique",
                             [&] { body(elements<const Stored<scalar_t>>(vector)); });
}

// Runs on the worker. before[b]: how many runs start before block b.
void count_runs(Grid& grid, const TensorRef& before, const TensorRef& vector) {
  with_elements(vector, [&](const auto* from) {
    count_rows(grid, before, vector.numel(),
               [runs = kernels::index::Runs(from)](std::int64_t begin, std::int64_t end) {
                 return runs.count(begin, end);
               });
  });
}

// Runs on the worker. What is not wanted is undefined.
void fill_runs(Grid& grid, const TensorRef& values, const TensorRef& lengths,
               const TensorRef& numbers, const TensorRef& vector, const TensorRef& order,
               const TensorRef& before) {
  auto* const starts = elements<std::int64_t>(lengths);
  with_elements(vector, [&]<class T>(const T* from) {
    const kernels::index::Runs runs(from);
    fill_rows(grid, before, vector.numel(),
              [&](std::int64_t begin, std::int64_t end, std::int64_t run, std::int64_t last) {
                runs.write(begin, run, last, elements<T>(values), starts);
                if (!numbers.defined()) return;
                runs.number(begin, end, run, elements<const std::int64_t>(order),
                            elements<std::int64_t>(numbers));
              });
  });
  if (starts != nullptr) {
    kernels::index::lengths_of_runs(starts, lengths.numel(), vector.numel());
  }
}

}  // namespace

ElementRuns element_runs(const char* name, const at::Tensor& vector, const at::Tensor& order,
                         bool numbers, bool lengths) {
  const c10::Device device = vector.device();
  check_may_wait(std::string("aten::") + name, device);
  const std::int64_t blocks = counted_blocks(vector.numel());
  const at::Tensor before = empty({blocks + 1}, c10::kLong, device);
  launch(name, Custom{}, count_runs, out(before), vector);
  const auto runs = before.select(0, blocks).item<std::int64_t>();
  ElementRuns result{empty({runs}, vector.scalar_type(), device), {}, {}};
  if (numbers) result.numbers = empty({vector.numel()}, c10::kLong, device);
  if (lengths) result.lengths = empty({runs}, c10::kLong, device);
  launch(name, Custom{}, fill_runs, out(result.values), out(result.lengths), out(result.numbers),
         vector, numbers ? order : at::Tensor(), before);
  return result;
}

}  // namespace loom::ops
