// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Commands in the order they were submitted, stored in place in fixed-size chunks: no heap
// allocation per command in the common case. One producer at a time appends (the queue holds its
// lock), one consumer walks; they share no state but the chunk contents and links, whose
// publication is the queue's business (it publishes a count of commands with release order).

#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom {

/// One piece of device memory that a command touches.
struct Access {
  const void* address;
  std::size_t bytes;
  bool writes;
};
using AccessList = std::vector<Access>;

}  // namespace loom
