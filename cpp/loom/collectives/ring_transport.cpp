// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/ring_transport.h"

#include "loom/base/check.h"
#include "loom/collectives/peer_error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace loom::collectives {
namespace {

/// Pieces begin at lines of the caches.
constexpr std::size_t kUnit = 64;

constexpr std::size_t to_units(std::size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

/// What precedes a message.
struct Header {
  std::uint64_t number;
  std::uint64_t bytes;      ///< of the message
  std::uint64_t all_bytes;  ///< of the operation, as all that follows
  std::uint32_t layout;
  std::uint32_t combination;
  std::int32_t root;
  std::uint8_t dtype;
  std::uint8_t reduction;
  std::uint16_t padding;
  char name[kUnit - 40];  ///< ends with a zero
};
static_assert(sizeof(Header) == kUnit);

constexpr std::uint32_t fold(std::uint64_t number) {
  return static_cast<std::uint32_t>(number ^ (number >> 32));
}

Header header_of(const Operation& operation, std::size_t bytes) {
  Header head{operation.number,
              bytes,
              operation.bytes,
              fold(operation.layout),
              fold(operation.combination),
              operation.root,
              operation.dtype,
              operation.reduction,
              0,
              {}};
  std::strncpy(head.name, operation.name, sizeof(head.name) - 1);
  return head;
}

Header header_at(const Ring& ring) {
  Header head;
  std::memcpy(&head, ring.readable(), sizeof(head));
  head.name[sizeof(head.name) - 1] = '\0';
  return head;
}

/// What another rank does, for errors. `head` outlives it.
Operation operation_in(const Header& head, const Operation& own) {
  Operation other{.name = head.name, .number = head.number, .bytes = head.all_bytes};
  other.root = head.root;
  other.dtype = head.dtype;
  other.reduction = head.reduction;
  other.dtype_name = own.dtype_name;
  return other;
}

bool is_named(const Header& head, const Operation& operation) {
  return std::strncmp(head.name, operation.name, sizeof(head.name) - 1) == 0;
}

std::string to_come(std::size_t bytes) {
  return loom::detail::concat(", with ", bytes, " to come,");
}

constexpr const char* kSameOperations = "the same operations with the same sizes on all ranks";
constexpr const char* kSameRoot = "the same root on all ranks";
constexpr const char* kSameStrides = "tensors with the same strides on all ranks";
constexpr const char* kSameElements = "the same dtypes, reductions and factors on all ranks";

}  // namespace

RingTransport::RingTransport(std::shared_ptr<Member> member)
    : member_(std::move(member)), peers_(static_cast<std::size_t>(member_->ranks())) {}

int RingTransport::rank() const noexcept { return member_->rank(); }
int RingTransport::ranks() const noexcept { return member_->ranks(); }

void RingTransport::begin(const Operation& operation) {
  member_->check_alive(operation);
  operation_ = operation;
  next_ = operation.number + 1;
  last_[operation.number % kKept] = operation;
  look_at_headers();
}

void RingTransport::check_unread() {
  operation_ = {.name = "the end of the group", .number = next_};
  look_at_headers();
}

void RingTransport::send(int peer, const void* data, std::size_t bytes) {
  peers_[static_cast<std::size_t>(peer)].outgoing.push_back(
      {static_cast<const std::byte*>(data), bytes, bytes});
  pump(peer);
}

void RingTransport::expect(int peer, std::size_t bytes) {
  peers_[static_cast<std::size_t>(peer)].incoming.push_back({bytes, bytes});
}

bool RingTransport::pump() {
  bool left = false;
  for (int peer = 0; peer < ranks(); ++peer) left = pump(peer) || left;
  return left;
}

// Whole pieces only, so that the other side is woken for what it can use.
bool RingTransport::pump(int peer) {
  auto& messages = peers_[static_cast<std::size_t>(peer)].outgoing;
  if (messages.empty()) return false;
  const Ring& ring = member_->outgoing(Lane::kCollective, peer);
  bool written = false;
  while (!messages.empty()) {
    Outgoing& message = messages.front();
    const std::size_t piece = std::min(message.bytes, kPieceBytes);
    const std::size_t header = message.begun ? 0 : sizeof(Header);
    if (ring.room() < header + to_units(piece)) break;
    std::byte* to = ring.writable();
    if (header != 0) {
      const Header head = header_of(operation_, message.whole);
      std::memcpy(to, &head, sizeof(head));
      to += sizeof(head);
      message.begun = true;
    }
    if (piece != 0) std::memcpy(to, message.data, piece);
    ring.publish(header + to_units(piece));
    written = true;
    message.data += piece;
    message.bytes -= piece;
    if (message.bytes == 0) messages.pop_front();
  }
  if (written) member_->bell(peer).ring();
  return !messages.empty();
}

std::span<const std::byte> RingTransport::next(int peer) {
  Peer& state = peers_[static_cast<std::size_t>(peer)];
  LOOM_ASSERT(!state.incoming.empty() && state.held == 0, "next() of what was not announced");
  Incoming& message = state.incoming.front();
  const Ring& ring = member_->incoming(Lane::kCollective, peer);
  const std::size_t piece = std::min(message.bytes, kPieceBytes);
  if (!message.begun) {
    await(peer, ring, sizeof(Header));
    read_header(peer, message);
    message.begun = true;
  }
  await(peer, ring, to_units(piece));
  state.held = to_units(piece);
  message.bytes -= piece;
  return {ring.readable(), piece};
}

void RingTransport::await(int peer, const Ring& ring, std::size_t bytes) {
  member_->check_alive(operation_);
  if (ring.available() >= bytes) return;
  const std::array<int, 1> awaited{peer};
  // A short wait is left alone.
  constexpr int kCallsBeforeLook = 2;
  int calls = 0;
  member_->wait(member_->bell(rank()), awaited, operation_, [&] {
    pump();
    if (ring.available() >= bytes) return true;
    if (++calls > kCallsBeforeLook) look_at_headers();
    return false;
  });
}

void RingTransport::read_header(int peer, const Incoming& message) {
  const Ring& ring = member_->incoming(Lane::kCollective, peer);
  check_call(peer);
  const Header head = header_at(ring);
  const Operation other = operation_in(head, operation_);
  if (head.number != operation_.number || head.bytes != message.whole ||
      head.all_bytes != operation_.bytes) {
    fail(kSameOperations, operation_, peer, other, to_come(message.whole), to_come(head.bytes));
  }
  if (head.layout != fold(operation_.layout)) {
    fail(kSameStrides, operation_, peer, other, "", "");
  }
  // No element has no dtype.
  const bool same_dtype = head.dtype == operation_.dtype || message.whole == 0;
  if (!same_dtype || head.combination != fold(operation_.combination)) {
    fail(kSameElements, operation_, peer, other, "", "");
  }
  ring.release(sizeof(head));
}

void RingTransport::check_call(int peer) {
  const Header head = header_at(member_->incoming(Lane::kCollective, peer));
  // A rank that is ahead says nothing of what this one has called.
  if (head.number > operation_.number || head.number >= next_) return;
  const Operation other = operation_in(head, operation_);
  const Operation* const own = operation_of(head.number);
  if (own == nullptr) fail(kSameOperations, operation_, peer, other, "", to_come(head.bytes));
  if (!is_named(head, *own)) fail(kSameOperations, *own, peer, other, "", to_come(head.bytes));
  if (head.root != own->root) fail(kSameRoot, *own, peer, other, "", "");
  if (head.number != operation_.number) {
    fail(kSameOperations, *own, peer, other, "", to_come(head.bytes));
  }
}

void RingTransport::look_at_headers() {
  for (int peer = 0; peer < ranks(); ++peer) {
    const Peer& state = peers_[static_cast<std::size_t>(peer)];
    const bool in_message =
        state.held != 0 || (!state.incoming.empty() && state.incoming.front().begun);
    if (peer == rank() || in_message) continue;
    if (member_->incoming(Lane::kCollective, peer).available() >= sizeof(Header)) check_call(peer);
  }
}

const Operation* RingTransport::operation_of(std::uint64_t number) const {
  const Operation& own = last_[number % kKept];
  const bool is_there = number < next_ && own.number == number;
  return is_there ? &own : nullptr;
}

void RingTransport::fail(const char* expected, const Operation& own, int peer,
                         const Operation& other, const std::string& own_more,
                         const std::string& other_more) {
  const std::string why = loom::detail::concat("expected ", expected, ", got ", own.description(),
                                               own_more, " on rank ", rank(), ", and ",
                                               other.description(), other_more, " on rank ", peer);
  member_->abort(why);
  throw PeerError(PeerError::Cause::kMismatch, loom::detail::concat(operation_.text(), ": ", why));
}

void RingTransport::release(int peer) {
  Peer& state = peers_[static_cast<std::size_t>(peer)];
  if (state.incoming.front().bytes == 0) state.incoming.pop_front();
  member_->incoming(Lane::kCollective, peer).release(std::exchange(state.held, 0));
  member_->bell(peer).ring();  // it may wait for room, which the header of no bytes has made, too
}

// One peer after the other: who has all of its messages may leave meanwhile.
template <class Done>
void RingTransport::await_each(Done&& done) {
  for (int peer = 0; peer < ranks(); ++peer) {
    if (done(peer)) continue;
    const std::array<int, 1> awaited{peer};
    member_->wait(member_->bell(rank()), awaited, operation_, [&] {
      pump();
      return done(peer);
    });
  }
}

void RingTransport::flush() {
  if (!pump()) return;
  await_each([&](int peer) { return peers_[static_cast<std::size_t>(peer)].outgoing.empty(); });
}

void RingTransport::finish() {
  flush();
  await_each([&](int peer) { return member_->handed_over(Lane::kCollective, peer); });
}

void RingTransport::abort(const std::string& why) noexcept { member_->abort(why); }
std::string RingTransport::reason() const { return member_->reason(); }

}  // namespace loom::collectives
