// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A way to one rank on another host: frames of bytes that arrive whole and in order.
// Thread: send() one at a time, receive() another one; close(): any.

#include "loom/base/export.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace loom::collectives {

class LOOM_API Channel {
 public:
  /// Of a frame, at most: a head of 64 bytes, and two pieces of a ring.
  static constexpr std::size_t kFrameBytes = 64 + (std::size_t{128} << 10);

  virtual ~Channel() = default;

  /// Sends a frame that consists of the two; returns when the network has it.
  /// Throws: std::exception when the connection is lost or closed, or when the network does not
  /// take it within `limit_ns`, after which the connection is lost.
  virtual void send(std::span<const std::byte> head, std::span<const std::byte> body,
                    std::int64_t limit_ns) = 0;

  /// Waits for the next frame, which stays until the next call; what lies behind its end is
  /// anything. Empty once the channel is closed. Throws: std::exception when the connection is
  /// lost.
  [[nodiscard]] virtual std::span<const std::byte> receive() = 0;

  /// Ends both, for good: whoever is in one of them returns at once.
  virtual void close() noexcept = 0;
};

}  // namespace loom::collectives
