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
  std::uint64_t all_bytes;  ///< of the operation
  std::uint64_t layout;     ///< of the operation, as the next two
  std::uint64_t combination;
  char name[kUnit - 40];  ///< ends with a zero
};
static_assert(sizeof(Header) == kUnit);

}  // namespace

RingTransport::RingTransport(std::shared_ptr<Member> member)
    : member_(std::move(member)), peers_(static_cast<std::size_t>(member_->ranks())) {}

int RingTransport::rank() const noexcept { return member_->rank(); }
int RingTransport::ranks() const noexcept { return member_->ranks(); }

void RingTransport::begin(const Operation& operation) {
  member_->check_alive(operation);
  operation_ = operation;
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
      Header head{operation_.number, message.whole,          operation_.bytes,
                  operation_.layout, operation_.combination, {}};
      std::strncpy(head.name, operation_.name, sizeof(head.name) - 1);
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
  member_->wait(member_->bell(rank()), awaited, operation_, [&] {
    pump();
    return ring.available() >= bytes;
  });
}

void RingTransport::read_header(int peer, const Incoming& message) {
  const Ring& ring = member_->incoming(Lane::kCollective, peer);
  Header head;
  std::memcpy(&head, ring.readable(), sizeof(head));
  head.name[sizeof(head.name) - 1] = '\0';
  const bool same = head.number == operation_.number && head.bytes == message.whole &&
                    head.all_bytes == operation_.bytes &&
                    std::strncmp(head.name, operation_.name, sizeof(head.name) - 1) == 0;
  const bool same_layout = head.layout == operation_.layout;
  if (same && same_layout && head.combination == operation_.combination) {
    return ring.release(sizeof(head));
  }
  const std::string ranks = loom::detail::concat(" on rank ", rank(), " than on rank ", peer);
  std::string why;
  if (!same) {
    why = loom::detail::concat(
        "expected the same operations with the same sizes on all ranks, got ", operation_.text(),
        " of ", operation_.bytes, " bytes, with ", message.whole, " to come, on rank ", rank(),
        ", and ", head.name, " (number ", head.number, ") of ", head.all_bytes, " bytes, with ",
        head.bytes, " to come, on rank ", peer);
  } else if (!same_layout) {
    why = "expected tensors with the same strides on all ranks, got others" + ranks;
  } else {
    why = "expected the same dtypes, reductions and factors on all ranks, got others" + ranks;
  }
  member_->abort(same ? loom::detail::concat("in ", operation_.text(), ": ", why) : why);
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
