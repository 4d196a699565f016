// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Makes a rank of another host look like one of this: a thread sends what is written into the rings
// to it, another one writes what comes into the rings from it, and both rings bells as ranks of one
// host do. Bytes stay in the ring of who sent them until the other side has read them out of its
// own, so there is always room for what comes, and receivers wait for nobody.
// Each side ends with one last frame, "left" or "aborted", and answers that of the other one: when
// both have gone nothing is on the way that a closed connection could lose.
// Thread: leave(): any.

#include "loom/base/export.h"
#include "loom/collectives/channel.h"
#include "loom/collectives/segment.h"
#include "loom/device/thread.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace loom::collectives {

class LOOM_API Carrier {
 public:
  /// Requires: `peer` is a remote rank of `member`, and its side has a carrier, too.
  Carrier(std::shared_ptr<Member> member, int peer, std::unique_ptr<Channel> channel);
  /// As leave(), and waits until the other side has answered, a second at most.
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  /// Tells the other side, behind all that was sent, that this rank takes part in nothing more.
  void leave() noexcept;

 private:
  enum class Kind : std::uint32_t { kBytes, kRead, kLeft, kAborted };
  struct Head;

  void send_all() noexcept;
  /// Returns false after the last frame.
  bool send_next();
  bool send_lane(Lane lane);
  void send(Kind kind, Lane lane, std::span<const std::byte> body);
  /// Whether the other side must be told what was read from it, lest its ring stays full.
  [[nodiscard]] bool owes_news() const;
  void wait_for_answer();

  void receive_all() noexcept;
  /// Returns false after the last frame.
  bool receive_next();
  void take(Lane lane, std::span<const std::byte> body);
  /// Of the two threads the last one says that the peer is gone: nothing more comes from it, and
  /// what it got before is known.
  void end_one() noexcept;
  void stop() noexcept;

  const std::shared_ptr<Member> member_;
  const int peer_;
  RemotePeer& remote_;
  const std::unique_ptr<Channel> channel_;

  // Of the sender: up to where each lane is sent, and what the other side knows to be read.
  std::array<std::uint64_t, kLanes> sent_{}, told_{};
  // Sequentially consistent, all: they are written once, and the bell is rung after them.
  std::atomic<bool> leaving_{false};
  std::atomic<bool> in_send_{false};   // and nothing limits how long
  std::atomic<bool> answered_{false};  // the other side's last frame has come, or its end
  std::atomic<int> threads_{2};
  std::atomic<std::uint32_t> sender_ended_{0};
  std::atomic<std::int64_t> leave_until_ns_{INT64_MAX};

  std::optional<LoomThread> receiver_, sender_;
};

}  // namespace loom::collectives
