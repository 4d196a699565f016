// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/mailbox.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/collectives/peer_error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

namespace loom::collectives {
namespace {

constexpr std::size_t kUnit = 64;
/// What is written or read at once, when a message is long.
constexpr std::size_t kPieceBytes = std::size_t{32} << 10;
/// How often who waits for anybody looks whether somebody is left.
constexpr std::int64_t kLookNs = 20'000'000;

constexpr std::size_t to_units(std::size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

}  // namespace

/// Those who ask, in the order in which they have begun to.
class Mailbox::Requests {
 public:
  std::uint64_t add(int peer, std::int64_t tag) {
    MutexLock lock(mutex_);
    waiting_.emplace(next_, Wanted{peer, tag});
    return next_++;
  }
  void remove(std::uint64_t number) {
    MutexLock lock(mutex_);
    waiting_.erase(number);
  }
  /// Whether nobody before `number` wants a message with `tag` from `peer`.
  [[nodiscard]] bool is_first(std::uint64_t number, int peer, std::int64_t tag) const {
    MutexLock lock(mutex_);
    return std::none_of(waiting_.begin(), waiting_.lower_bound(number), [&](const auto& entry) {
      const Wanted& wanted = entry.second;
      return wanted.tag == tag && (wanted.peer == peer || wanted.peer == kAnybody);
    });
  }

 private:
  struct Wanted {
    int peer;
    std::int64_t tag;
  };
  mutable Mutex mutex_;  // after an inbox's
  std::map<std::uint64_t, Wanted> waiting_ LOOM_GUARDED_BY(mutex_);
  std::uint64_t next_ LOOM_GUARDED_BY(mutex_) = 0;
};

Mailbox::Request::Request(std::shared_ptr<Requests> all, int peer, std::int64_t tag)
    : all_(std::move(all)), peer_(peer), tag_(tag), number_(all_->add(peer, tag)) {}

Mailbox::Request::~Request() { all_->remove(number_); }

Mailbox::Mailbox(std::shared_ptr<Member> member)
    : member_(std::move(member)), requests_(std::make_shared<Requests>()) {
  for (int peer = 0; peer < member_->ranks(); ++peer) {
    inboxes_.push_back(std::make_unique<Inbox>());
  }
}

std::shared_ptr<Mailbox::Request> Mailbox::request(int peer, std::int64_t tag) {
  return std::make_shared<Request>(requests_, peer, tag);
}

void Mailbox::send(int peer, std::int64_t tag, const void* data, std::size_t bytes,
                   const Operation& operation) {
  static_assert(sizeof(Header) == kUnit);
  member_->check_alive(operation);
  if (peer == member_->rank()) return keep(peer, tag, data, bytes);
  const Ring& ring = member_->outgoing(Lane::kPointToPoint, peer);
  const std::array<int, 1> awaited{peer};
  const auto put = [&](const void* from, std::size_t size) {
    member_->wait(member_->departure_bell(member_->rank()), awaited, operation,
                  [&] { return ring.room() >= to_units(size); });
    std::memcpy(ring.writable(), from, size);
    ring.publish(to_units(size));
    member_->arrival_bell(peer).ring();
  };
  const Header head{tag, bytes, {}};
  put(&head, sizeof(head));
  const auto* const from = static_cast<const std::byte*>(data);
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    put(from + at, std::min(kPieceBytes, bytes - at));
  }
  if (member_->handed_over(Lane::kPointToPoint, peer)) return;
  member_->wait(member_->departure_bell(member_->rank()), awaited, operation,
                [&] { return member_->handed_over(Lane::kPointToPoint, peer); });
}

int Mailbox::receive(const Request& request, void* to, std::size_t bytes,
                     const Operation& operation) {
  member_->check_alive(operation);
  if (request.peer_ == kAnybody) return receive_any(request, to, bytes, operation);
  std::vector<int> awaited;
  if (request.peer_ != member_->rank()) awaited.push_back(request.peer_);
  member_->wait(member_->arrival_bell(member_->rank()), awaited, operation,
                [&] { return try_receive(request.peer_, request, to, bytes, operation); });
  return request.peer_;
}

void Mailbox::keep(int peer, std::int64_t tag, const void* data, std::size_t bytes) {
  Parked message{tag, std::vector<std::byte>(bytes)};
  if (bytes != 0) std::memcpy(message.bytes.data(), data, bytes);
  Inbox& inbox = *inboxes_[static_cast<std::size_t>(peer)];
  {
    MutexLock lock(inbox.mutex);
    inbox.parked.push_back(std::move(message));
  }
  member_->arrival_bell(member_->rank()).ring();
}

int Mailbox::receive_any(const Request& request, void* to, std::size_t bytes,
                         const Operation& operation) {
  int source = -1;
  // Nobody in particular is awaited: that one rank has left is no reason to give up, but that all
  // have is.
  std::int64_t next_look = now_ns() + kLookNs;
  member_->wait(member_->arrival_bell(member_->rank()), {}, operation, [&] {
    const bool looks = now_ns() >= next_look;
    const bool alone = looks && all_gone();
    if (looks) next_look = now_ns() + kLookNs;
    for (int peer = 0; peer < member_->ranks(); ++peer) {
      if (peer == member_->rank() || !try_receive(peer, request, to, bytes, operation)) continue;
      source = peer;
      return true;
    }
    if (alone) {
      throw PeerError(PeerError::Cause::kLost,
                      loom::detail::concat(operation.text(), ": all other ranks have left the ",
                                           "group, or their processes have ended"));
    }
    return false;
  });
  return source;
}

bool Mailbox::all_gone() const {
  for (int peer = 0; peer < member_->ranks(); ++peer) {
    if (peer != member_->rank() && !member_->gone(peer)) return false;
  }
  return true;
}

bool Mailbox::try_receive(int peer, const Request& request, void* to, std::size_t bytes,
                          const Operation& operation) {
  Inbox& inbox = *inboxes_[static_cast<std::size_t>(peer)];
  const std::int64_t tag = request.tag_;
  MutexLock lock(inbox.mutex);
  if (!requests_->is_first(request.number_, peer, tag)) return false;
  const auto found = std::find_if(inbox.parked.begin(), inbox.parked.end(),
                                  [&](const Parked& message) { return message.tag == tag; });
  if (found != inbox.parked.end()) {
    check_size(peer, bytes, found->bytes.size(), operation);
    if (bytes != 0) std::memcpy(to, found->bytes.data(), bytes);
    inbox.parked.erase(found);
    end(request);
    return true;
  }
  if (peer == member_->rank()) return false;
  const Ring& ring = member_->incoming(Lane::kPointToPoint, peer);
  while (ring.available() >= sizeof(Header)) {
    Header head;
    std::memcpy(&head, ring.readable(), sizeof(head));
    if (head.tag == tag) check_size(peer, bytes, head.bytes, operation);
    ring.release(sizeof(head));
    if (head.tag == tag) {
      read(peer, static_cast<std::byte*>(to), bytes, operation);
      end(request);
      return true;
    }
    Parked message{head.tag, std::vector<std::byte>(head.bytes)};
    read(peer, message.bytes.data(), head.bytes, operation);
    inbox.parked.push_back(std::move(message));
    member_->arrival_bell(member_->rank()).ring();  // it may be what another thread waits for
  }
  return false;
}

void Mailbox::end(const Request& request) {
  requests_->remove(request.number_);
  member_->arrival_bell(member_->rank()).ring();
}

void Mailbox::read(int peer, std::byte* to, std::size_t bytes, const Operation& operation) {
  const Ring& ring = member_->incoming(Lane::kPointToPoint, peer);
  const std::array<int, 1> awaited{peer};
  member_->departure_bell(peer).ring();  // the header has made room
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    const std::size_t piece = std::min(kPieceBytes, bytes - at);
    member_->wait(member_->arrival_bell(member_->rank()), awaited, operation,
                  [&] { return ring.available() >= to_units(piece); });
    std::memcpy(to + at, ring.readable(), piece);
    ring.release(to_units(piece));
    member_->departure_bell(peer).ring();
  }
}

void Mailbox::check_size(int peer, std::size_t expected, std::size_t got,
                         const Operation& operation) {
  if (expected == got) return;
  const std::string why = loom::detail::concat("rank ", member_->rank(), " expected ", expected,
                                               " bytes from rank ", peer, ", got ", got);
  member_->abort(loom::detail::concat("in ", operation.text(), " ", why));
  throw PeerError(PeerError::Cause::kMismatch, loom::detail::concat(operation.text(), ": ", why));
}

}  // namespace loom::collectives
