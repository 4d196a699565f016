// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Messages between two ranks, with tags: who receives takes the first message
// with its tag, and those before it are kept for others. Sends to one peer are one thread's at a
// time, and arrive in order; receives may be several threads'.

#include "loom/base/export.h"
#include "loom/base/mutex.h"
#include "loom/collectives/operation.h"
#include "loom/collectives/segment.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace loom::collectives {

class LOOM_API Mailbox {
 public:
  explicit Mailbox(std::shared_ptr<Member> member);
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Returns when the message arrives whatever this process does, or is kept if `peer` is this rank.
  /// Throws: PeerError.
  void send(int peer, std::int64_t tag, const void* data, std::size_t bytes,
            const Operation& operation);

  /// Waits for a message from `peer`. Throws: PeerError, also if it has another size.
  void receive(int peer, std::int64_t tag, void* to, std::size_t bytes, const Operation& operation);

  /// Waits for a message from anybody, and returns from whom it came.
  int receive_any(std::int64_t tag, void* to, std::size_t bytes, const Operation& operation);

 private:
  struct Header {
    std::int64_t tag;
    std::uint64_t bytes;
    std::byte padding[48];
  };
  struct Parked {
    std::int64_t tag;
    std::vector<std::byte> bytes;
  };
  struct Inbox {
    Mutex mutex;  // taken for a whole message
    std::deque<Parked> parked LOOM_GUARDED_BY(mutex);
  };

  /// Keeps a message of this rank to itself.
  void keep(int peer, std::int64_t tag, const void* data, std::size_t bytes);
  /// Takes the message if it has come, or keeps one that is another's.
  bool try_receive(int peer, std::int64_t tag, void* to, std::size_t bytes,
                   const Operation& operation);
  [[nodiscard]] bool all_gone() const;
  void read(int peer, std::byte* to, std::size_t bytes, const Operation& operation);
  void check_size(int peer, std::size_t expected, std::size_t got, const Operation& operation);

  const std::shared_ptr<Member> member_;
  std::vector<std::unique_ptr<Inbox>> inboxes_;
};

}  // namespace loom::collectives
