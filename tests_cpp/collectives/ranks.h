// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Ranks of a test: threads that share a segment as processes do, each with an opening of its own.

#include "loom/base/futex.h"
#include "loom/collectives/mailbox.h"
#include "loom/collectives/segment.h"
#include "loom/collectives/shared_transport.h"

#include "support/threads.h"
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace loom::collectives::testing {

/// An operation that has so many seconds from now on.
inline Operation operation(const char* name, std::uint64_t number = 0, double seconds = 60) {
  return {name, number, now_ns() + static_cast<std::int64_t>(seconds * 1e9)};
}

/// One rank's side of a group.
struct Rank {
  Rank(const Descriptor& segment, int rank, int ranks)
      : member(std::make_shared<Member>(segment, rank, ranks)),
        transport(member),
        mailbox(member),
        index(rank),
        count(ranks) {}

  std::shared_ptr<Member> member;
  SharedTransport transport;
  Mailbox mailbox;
  int index, count;
  std::uint64_t number = 0;

  /// Runs body() as the next operation.
  template <class Body>
  void run(const char* name, Body&& body) {
    transport.begin(operation(name, number++));
    body();
    transport.finish();
  }
};

/// Calls body(Rank&) on a thread for each rank; all ranks are there before the first begins and
/// stay until the last has ended.
template <class Body>
void on_ranks(int count, Body&& body) {
  const Descriptor segment = create_segment(count);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.push_back(std::make_unique<Rank>(segment, rank, count));
  }
  loom::testing::on_threads(count, [&](int rank) { body(*ranks[static_cast<std::size_t>(rank)]); });
}

}  // namespace loom::collectives::testing
