// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Messages between two ranks, with tags. Who wants one asks for it first, which settles the order;
// a message belongs to the first of those that it suits who has asked, and is kept until that one
// comes. Sends to one peer are one thread's at a time, and arrive in order; requests and receives
// may be several threads'.

#include "loom/base/export.h"
#include "loom/base/mutex.h"
#include "loom/collectives/operation.h"
#include "loom/collectives/segment.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace loom::collectives {

class LOOM_API Mailbox {
 public:
  static constexpr int kAnybody = -1;

  class Requests;
  /// A place among those who ask, until it has got its message or is dropped.
  class LOOM_API Request {
   public:
    Request(std::shared_ptr<Requests> all, int peer, std::int64_t tag);
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

   private:
    friend class Mailbox;
    const std::shared_ptr<Requests> all_;
    const int peer_;
    const std::int64_t tag_;
    const std::uint64_t number_;
  };

  explicit Mailbox(std::shared_ptr<Member> member);
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Returns when the message arrives whatever this process does; one to this rank is kept.
  /// Throws: PeerError.
  void send(int peer, std::int64_t tag, const void* data, std::size_t bytes,
            const Operation& operation);

  /// Asks for a message from `peer`, which may be kAnybody.
  [[nodiscard]] std::shared_ptr<Request> request(int peer, std::int64_t tag);

  /// Waits for the message, and returns from whom it came. Throws: PeerError, also if it has
  /// another size.
  int receive(const Request& request, void* to, std::size_t bytes, const Operation& operation);

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
    Mutex mutex{"Inbox", HeldInWaits::kAllowed};  // taken for a whole message
    std::deque<Parked> parked LOOM_GUARDED_BY(mutex);
  };

  /// Keeps a message of this rank to itself.
  void keep(int peer, std::int64_t tag, const void* data, std::size_t bytes);
  int receive_any(const Request& request, void* to, std::size_t bytes, const Operation& operation);
  /// Takes the message if it has come from `peer`; keeps those of others that are in its way.
  bool try_receive(int peer, const Request& request, void* to, std::size_t bytes,
                   const Operation& operation);
  /// The request has got its message: who has asked later may be next.
  void end(const Request& request);
  [[nodiscard]] bool all_gone() const;
  void read(int peer, std::byte* to, std::size_t bytes, const Operation& operation);
  void check_size(int peer, std::size_t expected, std::size_t got, const Operation& operation);

  const std::shared_ptr<Member> member_;
  const std::shared_ptr<Requests> requests_;
  std::vector<std::unique_ptr<Inbox>> inboxes_;
};

}  // namespace loom::collectives
