// SPDX-License-Identifier: BSD-3-Clause
#include "loom/collectives/carrier.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace loom::collectives {
namespace {

/// How long who leaves waits for the other side.
constexpr std::int64_t kLeaveNs = 1'000'000'000;
/// What is waited for rings a bell, or closes the channel.
constexpr std::int64_t kForeverNs = 1'000'000'000LL * 3600 * 24 * 365;

std::size_t index_of(Lane lane) { return static_cast<std::size_t>(lane); }

constexpr std::array<Lane, kLanes> kAllLanes = {Lane::kCollective, Lane::kPointToPoint};

}  // namespace

/// What each frame begins with.
struct Carrier::Head {
  Kind kind;
  std::uint32_t lane;
  std::uint64_t bytes;  ///< behind it
  /// Of each lane, how much of what was sent to this side it has read.
  std::array<std::uint64_t, kLanes> read;
  std::array<std::byte, 32> padding;
};

Carrier::Carrier(std::shared_ptr<Member> member, int peer, std::unique_ptr<Channel> channel)
    : member_(std::move(member)),
      peer_(peer),
      remote_(*member_->remote(peer)),
      channel_(std::move(channel)) {
  static_assert(sizeof(Head) == 64);
  receiver_.emplace("loom-lccl-recv", std::vector<int>{}, [this] { receive_all(); }, [] {});
  try {
    sender_.emplace(
        "loom-lccl-send", std::vector<int>{}, [this] { send_all(); }, [this] { stop(); });
  } catch (...) {
    channel_->close();  // the receiver waits for nothing else
    throw;
  }
}

Carrier::~Carrier() {
  leave();
  const std::int64_t until = leave_until_ns_;
  for (std::int64_t left = until - now_ns(); sender_ended_ == 0 && left > 0 && !exiting();
       left = until - now_ns()) {
    futex_wait_for(sender_ended_, 0, left);
  }
  channel_->close();
  // The sender joins the receiver's way: both have nothing left to wait for.
  sender_.reset();
  receiver_.reset();
}

void Carrier::leave() noexcept {
  std::int64_t never = INT64_MAX;
  static_cast<void>(leave_until_ns_.compare_exchange_strong(never, now_ns() + kLeaveNs));
  leaving_ = true;
  remote_.bell.ring();
}

// When the process ends, or at the end of the destructor.
void Carrier::stop() noexcept {
  leave();
  // It would be held up by who reads nothing.
  if (in_send_) channel_->close();
}

void Carrier::send_all() noexcept {
  try {
    while (send_next()) {
    }
  } catch (const std::exception&) {
    // The receiver says so, behind what has still come.
  }
  end_one();
  wait_for_answer();
  channel_->close();
  sender_ended_ = 1;
  futex_wake(sender_ended_);
}

bool Carrier::send_next() {
  const std::uint32_t heard = remote_.bell.heard();
  if (member_->aborted()) {
    const std::string why = member_->reason();
    send(Kind::kAborted, Lane::kCollective, std::as_bytes(std::span(why)));
    return false;
  }
  bool sent = false;
  for (const Lane lane : kAllLanes) sent = send_lane(lane) || sent;
  if (sent) return true;
  if (leaving_ || answered_) {
    send(Kind::kLeft, Lane::kCollective, {});
    return false;
  }
  if (owes_news()) {
    send(Kind::kRead, Lane::kCollective, {});
  } else {
    remote_.bell.wait(heard, 0, kForeverNs);
  }
  return true;
}

bool Carrier::send_lane(Lane lane) {
  constexpr std::size_t kBodyBytes = Channel::kFrameBytes - sizeof(Head);
  const Ring& ring = member_->outgoing(lane, peer_);
  std::uint64_t& sent = sent_[index_of(lane)];
  const auto bytes = std::min<std::size_t>(ring.written() - sent, kBodyBytes);
  if (bytes == 0) return false;
  send(Kind::kBytes, lane, {ring.readable_from(sent), bytes});
  sent += bytes;
  remote_.handed_over[index_of(lane)].store(sent, std::memory_order_release);
  member_->ring_own();
  return true;
}

void Carrier::send(Kind kind, Lane lane, std::span<const std::byte> body) {
  Head head{kind, static_cast<std::uint32_t>(lane), body.size(), {}, {}};
  for (const Lane each : kAllLanes) {
    head.read[index_of(each)] = member_->incoming(each, peer_).read();
  }
  // Said first: who has us leave sees it, or is seen.
  in_send_ = true;
  std::int64_t limit_ns = kForeverNs;
  if (leaving_) {
    in_send_ = false;
    limit_ns = std::max<std::int64_t>(1'000'000, leave_until_ns_ - now_ns());
  }
  channel_->send(std::as_bytes(std::span(&head, 1)), body, limit_ns);
  in_send_ = false;
  told_ = head.read;
}

bool Carrier::owes_news() const {
  return std::any_of(kAllLanes.begin(), kAllLanes.end(), [&](Lane lane) {
    const Ring& ring = member_->incoming(lane, peer_);
    return ring.read() - told_[index_of(lane)] >= ring.capacity() / 4;
  });
}

void Carrier::wait_for_answer() {
  const std::int64_t until = std::min(leave_until_ns_.load(), now_ns() + kLeaveNs);
  for (;;) {
    const std::uint32_t heard = remote_.bell.heard();
    const std::int64_t left = until - now_ns();
    if (answered_ || left <= 0) return;
    remote_.bell.wait(heard, 0, left);
  }
}

void Carrier::receive_all() noexcept {
  try {
    while (receive_next()) {
    }
  } catch (const std::exception&) {
    // The connection is lost, as it is when a process ends.
  }
  answered_ = true;
  remote_.bell.ring();
  end_one();
}

void Carrier::end_one() noexcept {
  if (--threads_ != 0) return;
  remote_.gone.store(true, std::memory_order_release);
  member_->ring_own();
}

bool Carrier::receive_next() {
  const std::span<const std::byte> frame = channel_->receive();
  if (frame.empty()) return false;
  Head head;
  std::memcpy(&head, frame.data(), sizeof(head));
  LOOM_CHECK(head.bytes <= frame.size() - sizeof(head) && head.lane < kLanes,
             "Carrier: expected a frame of ", frame.size(), " bytes at most, got ", head.bytes);
  const auto body = frame.subspan(sizeof(head), head.bytes);
  for (const Lane each : kAllLanes) {
    member_->outgoing(each, peer_).release_until(head.read[index_of(each)]);
  }
  switch (head.kind) {
    case Kind::kBytes:
      take(static_cast<Lane>(head.lane), body);
      break;
    case Kind::kRead:
      break;
    case Kind::kAborted:
      member_->abort({reinterpret_cast<const char*>(body.data()), body.size()});
      return false;
    case Kind::kLeft:
      return false;
  }
  member_->ring_own();
  return true;
}

void Carrier::take(Lane lane, std::span<const std::byte> body) {
  const Ring& ring = member_->incoming(lane, peer_);
  LOOM_CHECK(body.size() <= ring.room(), "Carrier: expected ", ring.room(), " bytes at most, got ",
             body.size());
  if (!body.empty()) std::memcpy(ring.writable(), body.data(), body.size());
  ring.publish(body.size());
}

}  // namespace loom::collectives
