// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How bytes get from one rank to the others in an operation of the whole group. All ranks run the
// same operations in the same order; what one sends another one expects, cut into the same pieces.
// Messages between two ranks arrive in the order of their sending.
// Thread: one at a time; abort() and reason(): any.

#include "loom/base/export.h"
#include "loom/collectives/operation.h"

#include <cstddef>
#include <span>
#include <string>

namespace loom::collectives {

class LOOM_API Transport {
 public:
  /// Of what is streamed: large enough for the copies, small enough for the caches.
  static constexpr std::size_t kPieceBytes = std::size_t{64} << 10;

  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int ranks() const noexcept = 0;

  /// Begins an operation. Throws: PeerError if the group is aborted.
  virtual void begin(const Operation& operation) = 0;

  /// Sends `bytes` to `peer`, in pieces of kPieceBytes; returns at once. The memory must not change
  /// until the peer has them, or flush() or finish() has returned.
  virtual void send(int peer, const void* data, std::size_t bytes) = 0;

  /// Says that a message of `bytes` is next from `peer`; several may be announced.
  virtual void expect(int peer, std::size_t bytes) = 0;

  /// Waits for the next piece from `peer`; it stays until release(peer). Sends go on meanwhile. An
  /// empty message is one empty piece.
  /// Throws: PeerError, after which the group is aborted for all ranks.
  [[nodiscard]] virtual std::span<const std::byte> next(int peer) = 0;
  virtual void release(int peer) = 0;

  /// Waits until the memory of all that was sent may change. Throws: as next().
  virtual void flush() = 0;
  /// Ends the operation: as flush(), and what was sent arrives though this process ends.
  virtual void finish() = 0;

  /// Ends the group for all ranks: whoever waits or begins gets a PeerError that says why.
  virtual void abort(const std::string& why) noexcept = 0;
  /// Why it was aborted, by whom ever; empty if it was not.
  [[nodiscard]] virtual std::string reason() const = 0;
};

}  // namespace loom::collectives
