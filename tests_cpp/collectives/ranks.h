// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Ranks of a test: threads that share a segment as processes do, each with an opening of its own;
// or several segments, each of which is a host.

#include "loom/base/futex.h"
#include "loom/collectives/carrier.h"
#include "loom/collectives/mailbox.h"
#include "loom/collectives/ring_transport.h"
#include "loom/collectives/segment.h"

#include "collectives/socket_channel.h"
#include "support/threads.h"
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace loom::collectives::testing {

/// An operation that has so many seconds from now on.
inline Operation operation(const char* name, std::uint64_t number = 0, double seconds = 60) {
  return {name, number, now_ns() + static_cast<std::int64_t>(seconds * 1e9)};
}

/// One rank's side of a group.
struct Rank {
  Rank(const Descriptor& segment, int rank, int ranks, std::span<const int> remote = {})
      : member(std::make_shared<Member>(segment, rank, ranks, remote)),
        transport(member),
        mailbox(member),
        index(rank),
        count(ranks) {}

  std::shared_ptr<Member> member;
  RingTransport transport;
  Mailbox mailbox;
  int index, count;
  std::uint64_t number = 0;
  std::vector<std::unique_ptr<Carrier>> carriers = {};  // gone first

  /// Runs body() as the next operation.
  template <class Body>
  void run(const char* name, Body&& body) {
    transport.begin(operation(name, number++));
    body();
    transport.finish();
  }
};

/// The ranks of a group; hosts[r] is the name of the host of rank r.
inline std::vector<std::unique_ptr<Rank>> ranks_on(const std::string& hosts) {
  const int count = static_cast<int>(hosts.size());
  std::map<char, Descriptor> segments;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < count; ++rank) {
    const char host = hosts[static_cast<std::size_t>(rank)];
    if (!segments.contains(host)) segments[host] = create_segment(count);
    std::vector<int> remote;
    for (int peer = 0; peer < count; ++peer) {
      if (hosts[static_cast<std::size_t>(peer)] != host) remote.push_back(peer);
    }
    ranks.push_back(std::make_unique<Rank>(segments[host], rank, count, remote));
    Rank& second = *ranks.back();
    for (int peer = 0; peer < rank; ++peer) {
      if (second.member->remote(peer) == nullptr) continue;
      Rank& first = *ranks[static_cast<std::size_t>(peer)];
      auto [one, other] = SocketChannel::make_pair();
      first.carriers.push_back(std::make_unique<Carrier>(first.member, rank, std::move(one)));
      second.carriers.push_back(std::make_unique<Carrier>(second.member, peer, std::move(other)));
    }
  }
  return ranks;
}

/// Calls body(Rank&) on a thread for each rank; all ranks are there before the first begins and
/// stay until the last has ended.
template <class Body>
void on_hosts(const std::string& hosts, Body&& body) {
  const std::vector<std::unique_ptr<Rank>> ranks = ranks_on(hosts);
  loom::testing::on_threads(static_cast<int>(hosts.size()),
                            [&](int rank) { body(*ranks[static_cast<std::size_t>(rank)]); });
}

/// As on_hosts(), on one.
template <class Body>
void on_ranks(int count, Body&& body) {
  on_hosts(std::string(static_cast<std::size_t>(count), 'a'), body);
}

}  // namespace loom::collectives::testing
