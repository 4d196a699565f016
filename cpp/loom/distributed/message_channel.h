// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A channel over the messages of a c10d backend such as Gloo's. Several receives are posted ahead:
// the other side's messages come without being asked for. A receive may be larger than what comes.
// Thread: as Channel.

#include "loom/base/mutex.h"
#include "loom/collectives/channel.h"

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace loom::distributed {

class MessageChannel final : public collectives::Channel {
 public:
  MessageChannel(c10::intrusive_ptr<c10d::Backend> backend, int peer);

  void send(std::span<const std::byte> head, std::span<const std::byte> body,
            std::int64_t limit_ns) override;
  [[nodiscard]] std::span<const std::byte> receive() override;
  void close() noexcept override;

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  struct Posted {
    at::Tensor frame;
    WorkPtr work;
  };
  /// Posts a receive; not when closed.
  void post(Posted& receive);
  /// `work`, for close() to end, or null when closed.
  [[nodiscard]] WorkPtr keep(WorkPtr& place, WorkPtr work);

  const c10::intrusive_ptr<c10d::Backend> backend_;
  const int peer_;
  Mutex mutex_;
  bool closed_ LOOM_GUARDED_BY(mutex_) = false;
  // Written under the mutex, which close() takes; read by their thread without.
  Posted outgoing_;
  std::array<Posted, 4> incoming_;
  std::size_t next_ = 0, posted_ = 0;
};

}  // namespace loom::distributed
