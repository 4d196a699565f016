// SPDX-License-Identifier: BSD-3-Clause

// Loaded before libtorch_loom.so, this takes the place of its loom_kernel_launch(): generated
// kernels run on copies of their operands, each on the heap, where AddressSanitizer knows how long
// it is. In the device's memory, which is one mapping, it knows nothing of tensors. So a kernel
// that touches more than its command lists ends the process. Operands that share memory share a
// copy. What the kernel has written is copied back.

#include "loom/ops/compiled_kernel.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <span>
#include <vector>

namespace {

struct Copy {
  std::uintptr_t begin, end;  // of what was copied
  bool written;
  std::vector<std::byte> bytes;
};

bool is_memory(const LoomKernelArgument& argument) {
  return argument.access != kLoomKernelValue && argument.bytes > 0;
}

std::vector<Copy> copies_of(std::span<const LoomKernelArgument> operands) {
  std::vector<Copy> ranges;
  for (const LoomKernelArgument& operand : operands) {
    if (!is_memory(operand)) continue;
    ranges.push_back(
        {operand.value, operand.value + operand.bytes, operand.access != kLoomKernelRead, {}});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Copy& a, const Copy& b) { return a.begin < b.begin; });
  std::vector<Copy> copies;
  for (const Copy& range : ranges) {
    if (!copies.empty() && range.begin < copies.back().end) {
      copies.back().end = std::max(copies.back().end, range.end);
      copies.back().written |= range.written;
    } else {
      copies.push_back(range);
    }
  }
  for (Copy& copy : copies) {
    const auto* first = reinterpret_cast<const std::byte*>(copy.begin);
    copy.bytes.assign(first, first + (copy.end - copy.begin));
  }
  return copies;
}

std::uint64_t in_copy(const LoomKernelArgument& operand, std::vector<Copy>& copies) {
  for (Copy& copy : copies) {
    if (operand.value >= copy.begin && operand.value < copy.end) {
      return reinterpret_cast<std::uintptr_t>(copy.bytes.data() + (operand.value - copy.begin));
    }
  }
  std::abort();
}

// The first two arguments are the kernel's body and how many arguments it has.
void run_on_copies(const LoomKernelGrid* grid, const LoomKernelArgument* given) {
  const auto body = reinterpret_cast<LoomKernelBody>(static_cast<std::uintptr_t>(given[0].value));
  std::vector<LoomKernelArgument> arguments(given + 2, given + 2 + given[1].value);
  std::vector<Copy> copies = copies_of(arguments);
  for (LoomKernelArgument& argument : arguments) {
    if (is_memory(argument)) argument.value = in_copy(argument, copies);
  }
  body(grid, arguments.data());
  for (const Copy& copy : copies) {
    if (copy.written) {
      std::memcpy(reinterpret_cast<void*>(copy.begin), copy.bytes.data(), copy.bytes.size());
    }
  }
}

}  // namespace

void loom_kernel_launch(std::int64_t device, const char* name, LoomKernelBody body,
                        const LoomKernelArgument* arguments, std::int64_t count) {
  static const auto launch =
      reinterpret_cast<decltype(&loom_kernel_launch)>(dlsym(RTLD_NEXT, "loom_kernel_launch"));
  if (launch == nullptr) std::abort();
  std::vector<LoomKernelArgument> all = {
      {reinterpret_cast<std::uintptr_t>(body), 0, kLoomKernelValue},
      {static_cast<std::uint64_t>(count), 0, kLoomKernelValue}};
  all.insert(all.end(), arguments, arguments + count);
  launch(device, name, &run_on_copies, all.data(), static_cast<std::int64_t>(all.size()));
}
