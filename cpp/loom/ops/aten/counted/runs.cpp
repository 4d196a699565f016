// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/aten/counted/runs.h"

#include "loom/backend/stream.h"
#include "loom/base/ceil_div.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <string>

namespace loom::ops {
namespace {

constexpr std::int64_t kBlock = 1 << 15;

/// Elements [begin, end) of a block.
struct Block {
  std::int64_t begin, end;

  Block(std::int64_t number, std::int64_t count)
      : begin(number * kBlock), end(std::min(count, begin + kBlock)) {}
};

template <class Body>
void with_elements(const TensorRef& vector, Body&& body) {
  AT_DISPATCH_ALL_TYPES_AND3(c10::kBool, c10::kHalf, c10::kBFloat16, vector.dtype(), "unique",
                             [&] { body(reinterpret_cast<const scalar_t*>(vector.data())); });
}

template <class T>
bool starts_run(const T* elements, std::int64_t i) {
  return i == 0 || elements[i] != elements[i - 1];
}

// Runs on the worker. before[b]: how many runs start before block b.
void count_runs(Grid& grid, const TensorRef& before, const TensorRef& vector) {
  auto* const counts = reinterpret_cast<std::int64_t*>(before.data());
  const std::int64_t total = vector.numel(), blocks = ceil_div(total, kBlock);
  with_elements(vector, [&](const auto* elements) {
    grid.run_by_any(blocks, [&](std::int64_t b) {
      const Block block(b, total);
      std::int64_t count = b == 0 ? 1 : 0;
      for (std::int64_t i = std::max<std::int64_t>(block.begin, 1); i < block.end; ++i) {
        count += elements[i] != elements[i - 1] ? 1 : 0;
      }
      counts[b + 1] = count;
    });
  });
  counts[0] = 0;
  for (std::int64_t b = 0; b < blocks; ++b) counts[b + 1] += counts[b];
}

/// Where what is wanted goes; null if it is not.
template <class T>
struct Wanted {
  T* values;
  std::int64_t *starts, *numbers;
  const std::int64_t* order;

  void fill(const T* elements, const Block& block, std::int64_t first, std::int64_t last) const {
    // What is written is overwritten until it is right; nothing beyond the last run.
    std::int64_t run = first;
    for (std::int64_t i = block.begin; run < last; ++i) {
      values[run] = elements[i];
      if (starts != nullptr) starts[run] = i;
      run += starts_run(elements, i) ? 1 : 0;
    }
    if (numbers == nullptr) return;
    run = first - 1;
    for (std::int64_t i = block.begin; i < block.end; ++i) {
      run += starts_run(elements, i) ? 1 : 0;
      numbers[order != nullptr ? order[i] : i] = run;
    }
  }
};

// Runs on the worker.
void fill_runs(Grid& grid, const TensorRef& values, const TensorRef& lengths,
               const TensorRef& numbers, const TensorRef& vector, const TensorRef& order,
               const TensorRef& before) {
  const auto integers = [](const TensorRef& tensor) {
    return tensor.defined() ? reinterpret_cast<std::int64_t*>(tensor.data()) : nullptr;
  };
  const std::int64_t *const counts = integers(before), total = vector.numel(),
                            blocks = ceil_div(total, kBlock);
  std::int64_t* const starts = integers(lengths);
  with_elements(vector, [&]<class T>(const T* elements) {
    const Wanted<T> wanted{reinterpret_cast<T*>(values.data()), starts, integers(numbers),
                           integers(order)};
    grid.run_by_any(blocks, [&](std::int64_t b) {
      wanted.fill(elements, Block(b, total), counts[b], counts[b + 1]);
    });
  });
  if (starts == nullptr) return;
  const std::int64_t runs = lengths.numel();
  for (std::int64_t r = 0; r < runs; ++r) {
    starts[r] = (r + 1 < runs ? starts[r + 1] : total) - starts[r];
  }
}

}  // namespace

ElementRuns element_runs(const char* name, const at::Tensor& vector, const at::Tensor& order,
                         bool numbers, bool lengths) {
  const c10::Device device = vector.device();
  current_queue(device.index())
      .check_not_captured(std::string("aten::") + name,
                          "the host has to know the size of its result, which depends on data");
  const std::int64_t blocks = ceil_div(vector.numel(), kBlock);
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
