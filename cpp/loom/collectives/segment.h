// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The memory that the ranks of a group on one host share: rings from each to each, the bells beside
// which they sleep, and what they must know of each other. It is an anonymous file that lives as
// long as somebody has it open; there is nothing to clean up after a crash. While a rank lives it
// holds a lock on one byte of the file, which the system lets go when its process ends, however it
// does: no process ids, which differ between containers, and no threads.
// A rank on another host is there, too: with rings that only this process uses, and what a carrier
// (carrier.h) tells of it.
// Thread: any, but each ring and bell as it says.

#include "loom/base/export.h"
#include "loom/collectives/bell.h"
#include "loom/collectives/operation.h"
#include "loom/collectives/own_file.h"
#include "loom/collectives/ring.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace loom::collectives {

/// A file descriptor that is closed at the end.
class LOOM_API Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) noexcept : value_(value) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return value_; }

 private:
  int value_ = -1;
};

/// Rings of operations of the whole group, and of messages between two.
enum class Lane : std::uint8_t { kCollective, kPointToPoint };
inline constexpr std::size_t kLanes = 2;

/// What this process knows of a rank on another host: in the segment there is nothing of it.
struct RemotePeer {
  /// Beside which its carrier waits for whatever concerns it.
  Bell bell;
  // Release by the carrier's receiver, acquire by who looks: all that had come is in the rings.
  std::atomic<bool> gone{false};
  // Bytes of each lane that the network has: they arrive though this process ends. Release by the
  // carrier's sender, acquire by who waits for it.
  std::array<std::atomic<std::uint64_t>, kLanes> handed_over{};
};

namespace detail {
[[nodiscard]] std::size_t segment_bytes(int ranks);
}  // namespace detail

/// A zeroed file for so many ranks. Throws: std::system_error when the system has no memory for it.
[[nodiscard]] LOOM_API Descriptor create_segment(int ranks);

/// A rank's part of a segment.
class LOOM_API Member {
 public:
  /// Maps the file and takes the lock of `rank`; the ranks of `remote` have other segments.
  /// Throws: loom::Error when the file is none of create_segment(ranks) or the rank is taken;
  /// std::system_error when the system refuses.
  Member(const Descriptor& segment, int rank, int ranks, std::span<const int> remote = {});
  /// Leaves: whoever waits for this rank is told.
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  [[nodiscard]] const Ring& outgoing(Lane lane, int peer) const;
  [[nodiscard]] const Ring& incoming(Lane lane, int peer) const;
  /// Beside which `rank` waits in operations of the group.
  [[nodiscard]] Bell& bell(int rank) const;
  /// Beside which `rank` waits for messages, or for room for those that it sends.
  [[nodiscard]] Bell& arrival_bell(int rank) const;
  [[nodiscard]] Bell& departure_bell(int rank) const;

  /// Null for a rank that shares the segment.
  [[nodiscard]] RemotePeer* remote(int peer) const noexcept {
    return remote_[static_cast<std::size_t>(peer)].get();
  }
  /// Whether all that was written for `peer` arrives though this process ends.
  [[nodiscard]] bool handed_over(Lane lane, int peer) const noexcept;
  /// Wakes the threads of this rank.
  void ring_own() const noexcept;

  /// Ends all waiting of all ranks, for good: theirs throw `why`. The first reason stays.
  void abort(const std::string& why) noexcept;
  [[nodiscard]] bool aborted() const noexcept;
  /// Why; empty if not aborted.
  [[nodiscard]] std::string reason() const;

  /// Throws: PeerError if the group is aborted; what `operation` says is not begun.
  void check_alive(const Operation& operation) const;

  /// Tells the others that this rank takes part in nothing more. The destructor does so, too.
  void leave() noexcept;

  /// Whether the rank has left, or its process has ended.
  [[nodiscard]] bool gone(int peer) const noexcept;

  /// Returns once ready(), which one of `peers` makes so and rings `bell` for; `ready` may do work
  /// and is called often.
  /// Throws: PeerError when the group is aborted, a peer is gone, the operation's time is over
  /// (each of these aborts the group), or the process ends.
  template <class Ready>
  void wait(Bell& bell, std::span<const int> peers, const Operation& operation, Ready&& ready) {
    using Function = std::remove_reference_t<Ready>;
    wait_erased(
        bell, peers, operation,
        [](void* context) -> bool { return (*static_cast<Function*>(context))(); },
        const_cast<void*>(static_cast<const void*>(&ready)));
  }

 private:
  struct Control;
  using ReadyFunction = bool (*)(void* context);
  friend std::size_t detail::segment_bytes(int ranks);

  void map(const Descriptor& segment);
  void unmap() noexcept;
  [[nodiscard]] Ring map_ring(const Descriptor& segment, Lane lane, int from, int to);
  void ring_all() const noexcept;
  void wait_erased(Bell& bell, std::span<const int> peers, const Operation& operation,
                   ReadyFunction ready, void* context);
  /// Throws unless the wait may go on.
  void check(std::span<const int> peers, const Operation& operation, ReadyFunction ready,
             void* context);

  const int rank_, ranks_;
  const OwnFile file_;  // holds this rank's lock
  Control* control_ = nullptr;
  std::size_t control_bytes_ = 0;
  std::vector<std::byte*> mapped_;                   // the rings' memory
  std::vector<Ring> incoming_, outgoing_;            // by lane and peer
  std::vector<std::unique_ptr<RemotePeer>> remote_;  // by rank
};

}  // namespace loom::collectives
