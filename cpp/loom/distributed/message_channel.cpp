// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/message_channel.h"

#include "loom/base/check.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

namespace loom::distributed {
namespace {

/// A backend of its own has no other messages.
constexpr int kTag = 0;

/// Gloo's own timeout ends all connections of a group, so nothing waits with one but who leaves.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

at::Tensor make_frame() {
  return at::empty({static_cast<std::int64_t>(collectives::Channel::kFrameBytes)},
                   at::TensorOptions(at::kByte).device(at::kCPU));
}

}  // namespace

MessageChannel::MessageChannel(c10::intrusive_ptr<c10d::Backend> backend, int peer)
    : backend_(std::move(backend)), peer_(peer) {
  outgoing_.frame = make_frame();
  for (Posted& each : incoming_) each.frame = make_frame();
}

MessageChannel::WorkPtr MessageChannel::keep(WorkPtr& place, WorkPtr work) {
  WorkPtr before;  // goes after the lock
  MutexLock lock(mutex_);
  before = std::exchange(place, work);
  return closed_ ? WorkPtr() : work;
}

void MessageChannel::send(std::span<const std::byte> head, std::span<const std::byte> body,
                          std::int64_t limit_ns) {
  auto* const data = static_cast<std::byte*>(outgoing_.frame.mutable_data_ptr());
  std::memcpy(data, head.data(), head.size());
  if (!body.empty()) std::memcpy(data + head.size(), body.data(), body.size());
  std::vector<at::Tensor> message{
      outgoing_.frame.narrow(0, 0, static_cast<std::int64_t>(head.size() + body.size()))};
  const WorkPtr work = keep(outgoing_.work, backend_->send(message, peer_, kTag));
  const auto limit =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(limit_ns));
  LOOM_CHECK(work && work->wait(std::min(limit, kForever)),
             "send(): expected an open channel, got a closed one");
}

void MessageChannel::post(Posted& receive) {
  std::vector<at::Tensor> message{receive.frame};
  static_cast<void>(keep(receive.work, backend_->recv(message, peer_, kTag)));
}

std::span<const std::byte> MessageChannel::receive() {
  // What the last call has returned is free now.
  while (posted_ < next_ + incoming_.size()) post(incoming_[posted_++ % incoming_.size()]);
  Posted& first = incoming_[next_++ % incoming_.size()];
  {
    MutexLock lock(mutex_);
    if (closed_) return {};
  }
  if (!first.work->wait(kForever)) return {};
  return {static_cast<const std::byte*>(first.frame.const_data_ptr()),
          collectives::Channel::kFrameBytes};
}

void MessageChannel::close() noexcept {
  MutexLock lock(mutex_);
  closed_ = true;
  try {
    if (outgoing_.work) outgoing_.work->abort();
    for (const Posted& each : incoming_) {
      if (each.work) each.work->abort();
    }
  } catch (const std::exception&) {
    // Of a connection that is lost nobody waits for anything.
  }
}

}  // namespace loom::distributed
