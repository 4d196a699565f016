// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// launch() is how every kernel gets to a worker: it notes where the operands are, queues a command
// on the current stream of their device and returns. The command makes CPU tensors over the same
// memory and calls the kernel with them, once per block of its grid, on the worker and on the
// device's idle cores. Shapes, dtypes and devices are checked before, by the operator.
// Thread: any; the current stream is the calling thread's.

#include "loom/backend/stream.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"
#include "loom/fusion/producer.h"
#include "loom/ops/launch/split.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace loom::ops {

/// Marks an operand that the kernel writes.
template <AccessKind kAccess>
struct WrittenOperand {
  const at::Tensor& tensor;
};
/// Every element is written, whatever it was.
using Written = WrittenOperand<AccessKind::kReplace>;
[[nodiscard]] inline Written out(const at::Tensor& tensor) noexcept { return {tensor}; }
/// Some elements are written, or what is written depends on what they were.
using Updated = WrittenOperand<AccessKind::kUpdate>;
[[nodiscard]] inline Updated inout(const at::Tensor& tensor) noexcept { return {tensor}; }

/// What a kernel that cuts its own grid is given instead of blocks.
class Grid {
 public:
  Grid(Cores& cores, int priority, const fusion::Epilogue* epilogue = nullptr) noexcept
      : cores_(cores), priority_(priority), epilogue_(epilogue) {}
  /// Calls body(block) for every block in [0, blocks), on this and on idle cores.
  template <class Body>
  void run(std::int64_t blocks, Body&& body, RunBy by = RunBy::kDevice) {
    cores_.run(blocks, std::forward<Body>(body), priority_, by);
  }
  /// The same, with host threads that wait: for blocks that call nothing of ATen's but block
  /// kernels (brgemm), which run on the calling thread only, nor of libraries with threads of their
  /// own.
  template <class Body>
  void run_by_any(std::int64_t blocks, Body&& body) {
    run(blocks, std::forward<Body>(body), RunBy::kAny);
  }
  /// To be called by the kernels of launch_open(), in a block or behind the last one: a rectangle
  /// of the result is final, and no block will touch it again.
  void finish(std::int64_t row, std::int64_t rows, std::int64_t column,
              std::int64_t columns) const {
    if (epilogue_ != nullptr) epilogue_->run(row, rows, column, columns);
  }
  /// The same rectangle will be finished soon.
  void prefetch(std::int64_t row, std::int64_t rows, std::int64_t column,
                std::int64_t columns) const {
    if (epilogue_ != nullptr) epilogue_->prefetch(row, rows, column, columns);
  }

 private:
  Cores& cores_;
  const int priority_;
  const fusion::Epilogue* const epilogue_;
};

/// Split policy of kernels that take (Grid&, const TensorRef&..., extras...) and cut themselves.
struct Custom {};

/// Throws PyTorch's message for operands on different devices unless `tensor` is undefined, lives
/// on `device`, or is a CPU scalar.
void check_operand_device(const char* name, c10::Device device, const at::Tensor& tensor);

namespace detail {

template <AccessKind kAccess>
struct StoredTensor {
  TensorRef ref;
};
using ReadTensor = StoredTensor<AccessKind::kRead>;

template <class T>
struct IsTensor : std::false_type {};
template <AccessKind kAccess>
struct IsTensor<StoredTensor<kAccess>> : std::true_type {};

template <class T>
struct IsWritten : std::false_type {};
template <AccessKind kAccess>
struct IsWritten<WrittenOperand<kAccess>> : std::true_type {};

template <AccessKind kAccess>
StoredTensor<kAccess> store(const char* name, c10::Device device,
                            const WrittenOperand<kAccess>& operand) {
  check_operand_device(name, device, operand.tensor);
  return {TensorRef(operand.tensor, /*writes=*/true)};
}
inline ReadTensor store(const char* name, c10::Device device, const at::Tensor& operand) {
  check_operand_device(name, device, operand);
  return {TensorRef(operand)};
}
inline ReadTensor store(const char* name, c10::Device device,
                        const std::optional<at::Tensor>& operand) {
  return operand ? store(name, device, *operand) : ReadTensor{};
}

// A command outlives what references refer to: it keeps a copy and lends a reference to the kernel.
struct StoredDims {
  at::DimVector dims;
  [[nodiscard]] c10::IntArrayRef lend() const { return dims; }
};
struct StoredOptionalDims {
  std::optional<at::DimVector> dims;
  [[nodiscard]] c10::OptionalIntArrayRef lend() const {
    return dims ? c10::OptionalIntArrayRef(c10::IntArrayRef(*dims)) : std::nullopt;
  }
};
struct StoredText {
  std::string text;
  [[nodiscard]] std::string_view lend() const { return text; }
};
struct StoredOptionalText {
  std::optional<std::string> text;
  [[nodiscard]] std::optional<std::string_view> lend() const { return text; }
};

inline StoredDims store(const char*, c10::Device, c10::IntArrayRef dims) {
  return {at::DimVector(dims.begin(), dims.end())};
}
inline StoredOptionalDims store(const char*, c10::Device, c10::OptionalIntArrayRef dims) {
  if (!dims) return {};
  return {at::DimVector(dims->begin(), dims->end())};
}
inline StoredText store(const char*, c10::Device, std::string_view text) {
  return {std::string(text)};
}
inline StoredOptionalText store(const char*, c10::Device, std::optional<std::string_view> text) {
  if (!text) return {};
  return {std::string(*text)};
}
template <class T>
concept Extra =
    !IsWritten<std::decay_t<T>>::value && !std::is_same_v<std::decay_t<T>, at::Tensor> &&
    !std::is_same_v<std::decay_t<T>, std::optional<at::Tensor>>;

template <Extra T>
std::decay_t<T> store(const char*, c10::Device, T&& value) {
  return std::forward<T>(value);
}

template <class T>
decltype(auto) lend(const T& stored) {
  if constexpr (requires { stored.lend(); }) {
    return stored.lend();
  } else {
    return (stored);
  }
}

template <class Split, class Kernel, class... Stored>
struct Command {
  Split split;
  Kernel kernel;
  std::tuple<Stored...> operands;

  void operator()() {
    Queue& queue = *Queue::current();
    Grid grid(queue.cores(), queue.id().priority);
    if constexpr (std::is_same_v<Split, Custom>) {
      std::apply([&](const auto&... stored) { kernel(grid, raw(stored)...); }, operands);
    } else {
      run_blocks(grid);
    }
  }

  /// Of a kernel that cuts itself: its first operand lies at `to` in this run, and is finished by
  /// `epilogue`, if there is one. The command does not change: several threads may look at it.
  void run_at(std::byte* to, const fusion::Epilogue* epilogue) {
    static_assert(std::is_same_v<Split, Custom>);
    Queue& queue = *Queue::current();
    Grid grid(queue.cores(), queue.id().priority, epilogue);
    std::apply(
        [&](const auto& first, const auto&... others) {
          const TensorRef moved = first.ref.at(to);
          kernel(grid, moved, raw(others)...);
        },
        operands);
  }

  void accesses(AccessList& list) const {
    std::apply([&](const auto&... stored) { (append(list, stored), ...); }, operands);
  }

 private:
  template <class T>
  static decltype(auto) raw(const T& stored) {
    if constexpr (IsTensor<T>::value) {
      return (stored.ref);
    } else {
      return lend(stored);
    }
  }

  template <class T>
  static void append(AccessList& list, const T& stored) {
    if constexpr (requires { stored.accesses(list); }) stored.accesses(list);
  }
  template <AccessKind kAccess>
  static void append(AccessList& list, const StoredTensor<kAccess>& stored) {
    stored.ref.append_access(list, kAccess);
  }

  void run_blocks(Grid& grid) {
    constexpr int count = (int{IsTensor<Stored>::value} + ... + 0);
    std::array<const TensorRef*, count> tensors{};
    int next = 0;
    std::apply([&](const auto&... stored) { (collect(tensors, next, stored), ...); }, operands);
    const SlicePlan plan = split.plan(Operands(tensors.data(), tensors.size()));
    grid.run(
        plan.blocks(), [&](std::int64_t block) { run_block(plan, block * plan.block); }, plan.by);
  }

  template <class Array, class T>
  static void collect(Array& tensors, int& next, const T& stored) {
    if constexpr (IsTensor<T>::value) tensors[next++] = &stored.ref;
  }

  void run_block(const SlicePlan& plan, std::int64_t begin) const {
    int index = 0;
    // Braces fix the order of evaluation, which `index` needs.
    auto arguments = std::apply(
        [&](const auto&... stored) {
          return std::tuple<decltype(argument(plan, begin, index, stored))...>{
              argument(plan, begin, index, stored)...};
        },
        operands);
    std::apply(kernel, std::move(arguments));
  }

  template <class T>
  static auto argument(const SlicePlan& plan, std::int64_t begin, int& index, const T& stored) {
    if constexpr (IsTensor<T>::value) {
      return plan.slice(stored.ref, index++, begin);
    } else {
      return lend(stored);
    }
  }
};

template <class Split, class Kernel, class... Operand>
auto make_command(c10::Device device, const char* name, Split split, Kernel kernel,
                  Operand&&... operands) {
  return Command<Split, Kernel, decltype(store(name, device, std::forward<Operand>(operands)))...>{
      std::move(split),
      std::move(kernel),
      {store(name, device, std::forward<Operand>(operands))...}};
}

}  // namespace detail

/// Queues kernel(operands...) on the current stream of `device`. `name` is the operator's name and
/// must outlive the command. Operands: out(t) or inout(t) for written tensors, tensors and optional
/// tensors for read ones, anything else is copied into the command (lists and texts too) and passed
/// as it is; if it has a member `void accesses(AccessList&) const`, that lists memory that the
/// kernel touches, too. A kernel must write only elements of its block and may be called by several
/// threads at once.
template <class Split, class Kernel, class... Operand>
void launch_on(c10::Device device, const char* name, Split split, Kernel kernel,
               Operand&&... operands) {
  current_queue(device.index())
      .submit(name, detail::make_command(device, name, std::move(split), std::move(kernel),
                                         std::forward<Operand>(operands)...));
}

/// As launch_on(), on the device of the first (written) operand.
template <class Split, class Kernel, AccessKind kAccess, class... Operand>
void launch(const char* name, Split split, Kernel kernel, WrittenOperand<kAccess> first,
            Operand&&... operands) {
  launch_on(first.tensor.device(), name, std::move(split), std::move(kernel), first,
            std::forward<Operand>(operands)...);
}

}  // namespace loom::ops
