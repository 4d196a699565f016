// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A group's ways to its other ranks, shared by its process group and by the commands that are
// queued: it lives until the last of them has run. Thread: as its parts; abort() and reason(): any.

#include "loom/collectives/mailbox.h"
#include "loom/collectives/ring_transport.h"
#include "loom/distributed/network.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace loom::distributed {

class Engine {
 public:
  /// `network`: null when all ranks are on this host.
  Engine(std::shared_ptr<collectives::Member> member, std::unique_ptr<Network> network,
         const std::string& group);

  [[nodiscard]] int rank() const noexcept { return member_->rank(); }
  [[nodiscard]] int ranks() const noexcept { return member_->ranks(); }
  /// Used by the commands of one queue.
  [[nodiscard]] collectives::Transport& transport() noexcept { return transport_; }
  [[nodiscard]] collectives::Mailbox& mailbox() noexcept { return mailbox_; }

  /// What errors begin with: "lccl: rank 0 of group default_pg: ".
  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

  /// Tells the others that this rank takes part in nothing more.
  void leave() noexcept {
    member_->leave();
    if (network_ != nullptr) network_->leave();
  }
  /// Ends the group on all ranks.
  void abort(const std::string& why) noexcept { transport_.abort(why); }
  /// Why it has ended, or nothing.
  [[nodiscard]] std::string reason() const { return transport_.reason(); }
  /// Once all commands have run: says whether another rank has sent something that no operation of
  /// this one has read, or nothing. It ends the group then.
  [[nodiscard]] std::string unread();
  /// Throws: c10::DistBackendError if the group has ended; what `name` says is not begun.
  void check_alive(const char* name) const;

 private:
  const std::shared_ptr<collectives::Member> member_;
  const std::string prefix_;
  collectives::RingTransport transport_;
  collectives::Mailbox mailbox_;
  const std::unique_ptr<Network> network_;
};

/// Meets the other ranks at `store`; called by all of them, returns when all are there.
/// Throws: c10::DistBackendError when one does not come until `deadline_ns` (steady clock), or
/// when hosts cannot be connected.
[[nodiscard]] std::shared_ptr<Engine> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int ranks, const std::string& group,
                                              std::int64_t deadline_ns);

}  // namespace loom::distributed
