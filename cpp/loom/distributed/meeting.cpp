// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/meeting.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/base/options.h"
#include "loom/distributed/deadline.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <string>
#include <utility>

namespace loom::distributed {
namespace {

/// What a rank says of a segment that it has.
constexpr const char* kHasIt = "has it";

/// The same on all ranks of a machine, until it starts anew; containers share it.
std::string host_id() {
  std::string id = options().host_id;
  if (id.empty()) {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    file.exceptions(std::ios::badbit);  // not as if it were empty where there is no memory
    std::getline(file >> std::ws, id);
  }
  return id.empty() ? "unknown" : id;
}

}  // namespace

Meeting::Meeting(c10::intrusive_ptr<c10d::Store> store, int rank, int ranks,
                 std::int64_t deadline_ns)
    : store_(std::move(store)),
      rank_(rank),
      ranks_(ranks),
      deadline_ns_(deadline_ns),
      number_(store_->add(loom::detail::concat("meetings/", rank), 1)) {}

std::string Meeting::key(const std::string& what, int rank) const {
  return loom::detail::concat("meeting/", number_, "/", what, "/", rank);
}

std::string Meeting::get(const std::string& what, int rank) const {
  const std::string name = key(what, rank);
  try {
    store_->wait({name}, left_until(deadline_ns_));
    return store_->get_to_str(name);
  } catch (const c10::Error& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "lccl: expected rank ", rank,
                     " to come before the timeout, got: ", error.what_without_backtrace());
  }
}

c10::intrusive_ptr<c10d::Store> Meeting::store_for(const char* what) const {
  return c10::make_intrusive<c10d::PrefixStore>(
      loom::detail::concat("meeting/", number_, "/", what), store_);
}

std::vector<int> Meeting::find_neighbours() {
  const std::string own = host_id();
  store_->set(key("host", rank_), own);
  std::vector<int> neighbours;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (get("host", peer) == own) neighbours.push_back(peer);
  }
  return neighbours;
}

// Containers of one machine may not reach each other's sockets: those that are left form a host of
// their own, as often as it takes.
std::shared_ptr<collectives::Member> Meeting::meet() {
  std::vector<int> neighbours = find_neighbours();
  for (;;) {
    const int leader = neighbours.front();
    if (leader == rank_) {
      collectives::SegmentServer server(ranks_);
      serve(server, neighbours);
      return join(server.segment(), leader);
    }
    if (const auto segment = request(leader, neighbours)) return join(*segment, leader);
  }
}

void Meeting::serve(collectives::SegmentServer& server, const std::vector<int>& neighbours) {
  constexpr std::int64_t kLookNs = 50'000'000;
  store_->set(key("segment", rank_), server.name());
  const std::string what = loom::detail::concat("segment/", rank_);
  std::vector<int> others = neighbours;
  std::erase(others, rank_);
  std::size_t served = 0;
  const auto has_said = [&](int peer) { return store_->check({key(what, peer)}); };
  while (served < others.size()) {
    if (server.serve_one(now_ns() + kLookNs)) {
      ++served;
      continue;
    }
    // Who cannot come says so.
    const auto awaited = std::find_if_not(others.begin(), others.end(), has_said);
    if (awaited == others.end()) return;
    TORCH_CHECK_WITH(DistBackendError, now_ns() < deadline_ns_, "lccl: expected rank ", *awaited,
                     " to come before the timeout, got ", served + 1, " of ", neighbours.size(),
                     " ranks");
  }
  for (const int peer : others) static_cast<void>(get(what, peer));
}

std::optional<collectives::Descriptor> Meeting::request(int leader, std::vector<int>& neighbours) {
  const std::string name = get("segment", leader);
  const std::string what = loom::detail::concat("segment/", leader);
  std::optional<collectives::Descriptor> segment;
  std::string state = kHasIt;
  try {
    segment = collectives::request_segment(name, deadline_ns_);
  } catch (const std::exception& error) {
    state = error.what();
    TORCH_WARN("lccl: rank ", rank_, " cannot share memory with rank ", leader,
               ", which says to be on the same machine (", state,
               "): what they exchange goes over the network");
  }
  store_->set(key(what, rank_), state);
  if (segment) return segment;
  std::erase_if(neighbours, [&](int peer) { return peer == leader || get(what, peer) == kHasIt; });
  return std::nullopt;
}

std::shared_ptr<collectives::Member> Meeting::join(const collectives::Descriptor& segment,
                                                   int leader) {
  store_->set(key("leader", rank_), std::to_string(leader));
  std::vector<int> remote;
  for (int peer = 0; peer < ranks_; ++peer) {
    const int other = std::stoi(get("leader", peer));
    if (other != leader) remote.push_back(peer);
  }
  has_hosts_ = !remote.empty();
  std::shared_ptr<collectives::Member> member;
  try {
    member = std::make_shared<collectives::Member>(segment, rank_, ranks_, remote);
  } catch (const std::exception& error) {
    store_->set(key("member", rank_), error.what());
    throw;
  }
  store_->set(key("member", rank_), kHasIt);
  for (int peer = 0; peer < ranks_; ++peer) {
    const std::string state = get("member", peer);
    TORCH_CHECK_WITH(DistBackendError, state == kHasIt, "lccl: rank ", peer,
                     " cannot take part: ", state);
  }
  return member;
}

}  // namespace loom::distributed
