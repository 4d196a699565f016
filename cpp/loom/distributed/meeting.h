// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How the ranks of a group find each other at a store, and those that can share memory do: not who
// says to be on one host, but who has mapped the same segment. Thread: any.

#include "loom/collectives/segment.h"
#include "loom/collectives/segment_exchange.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace loom::distributed {

class Meeting {
 public:
  /// Ranks may meet several times at a store, one group after the other.
  Meeting(c10::intrusive_ptr<c10d::Store> store, int rank, int ranks, std::int64_t deadline_ns);

  /// Called by all ranks; returns when all are there.
  /// Throws: c10::DistBackendError when one does not come until the deadline.
  [[nodiscard]] std::shared_ptr<collectives::Member> meet();

  /// Once met: whether there are several hosts. The same on all ranks.
  [[nodiscard]] bool has_hosts() const noexcept { return has_hosts_; }

  /// A part of the store for those who have met.
  [[nodiscard]] c10::intrusive_ptr<c10d::Store> store_for(const char* what) const;

 private:
  [[nodiscard]] std::string key(const std::string& what, int rank) const;
  /// What `rank` has set, once it has. Throws: c10::DistBackendError at the deadline, which may be
  /// earlier than the store's own.
  [[nodiscard]] std::string get(const std::string& what, int rank) const;
  /// Those that say to be on this rank's machine, this one too.
  [[nodiscard]] std::vector<int> find_neighbours();
  /// Hands the segment to the others, until each has said whether it has got it.
  void serve(collectives::SegmentServer& server, const std::vector<int>& neighbours);
  /// The segment of `leader`; none if it cannot be had, and then `neighbours` are those that
  /// cannot have it either.
  [[nodiscard]] std::optional<collectives::Descriptor> request(int leader,
                                                               std::vector<int>& neighbours);
  /// Takes part with others in `segment`, which is that of `leader`.
  [[nodiscard]] std::shared_ptr<collectives::Member> join(const collectives::Descriptor& segment,
                                                          int leader);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, ranks_;
  const std::int64_t deadline_ns_, number_;
  bool has_hosts_ = false;
};

}  // namespace loom::distributed
