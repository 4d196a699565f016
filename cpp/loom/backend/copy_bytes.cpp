// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/allocator.h"
#include "loom/base/ceil_div.h"
#include "loom/device/address.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace loom {
namespace {

constexpr std::size_t kCopyBlock = 1024 * 1024;

struct CopyCommand {
  void* dest;
  const void* src;
  std::size_t bytes;
  Queue* queue;

  void operator()() const {
    const auto blocks = static_cast<std::int64_t>(ceil_div(bytes, kCopyBlock));
    auto* to = static_cast<std::byte*>(host_address(dest));
    const auto* from = static_cast<const std::byte*>(host_address(src));
    queue->cores().run(
        blocks,
        [&](std::int64_t block) {
          const std::size_t begin = static_cast<std::size_t>(block) * kCopyBlock;
          std::memcpy(to + begin, from + begin, std::min(kCopyBlock, bytes - begin));
        },
        queue->id().priority);
  }

  void accesses(AccessList& list) const {
    list.push_back({src, bytes, AccessKind::kRead});
    list.push_back({dest, bytes, AccessKind::kReplace});
  }
};

}  // namespace

void copy_device_bytes(void* dest, const void* src, std::size_t bytes, Queue& queue) {
  if (bytes == 0) return;
  queue.submit("copy", CopyCommand{dest, src, bytes, &queue});
}

}  // namespace loom
