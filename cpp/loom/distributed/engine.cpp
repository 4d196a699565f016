// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/engine.h"

#include "loom/base/check.h"
#include "loom/base/futex.h"
#include "loom/collectives/segment_exchange.h"

#include <c10/util/Exception.h>

#include <exception>
#include <fstream>
#include <utility>
#include <vector>

namespace loom::distributed {
namespace {

/// The same on all ranks of a host, until it starts anew; containers share it.
std::string host_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, id);
  return id.empty() ? "unknown" : id;
}

/// Where ranks meet at a store: they may do so several times, one group after the other.
class Meeting {
 public:
  Meeting(c10d::Store& store, int rank)
      : number_(store.add(loom::detail::concat("meetings/", rank), 1)) {}
  [[nodiscard]] std::string key(const char* what, int rank = 0) const {
    return loom::detail::concat("meeting/", number_, "/", what, "/", rank);
  }

 private:
  const std::int64_t number_;
};

/// What a member says of how it fared with the segment.
constexpr const char* kAttached = "attached";

/// Hands the segment to the other ranks, until each has said how it fared.
void serve(collectives::SegmentServer& server, const c10::intrusive_ptr<c10d::Store>& store,
           const Meeting& meeting, int rank, int ranks, std::int64_t deadline_ns) {
  constexpr std::int64_t kLookNs = 50'000'000;
  int served = 1;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    while (!store->check({meeting.key("member", peer)})) {
      TORCH_CHECK_WITH(DistBackendError, now_ns() < deadline_ns, "expected rank ", peer,
                       " to come before the timeout, got ", served, " of ", ranks, " ranks");
      if (server.serve_one(now_ns() + kLookNs)) ++served;
    }
  }
}

}  // namespace

Engine::Engine(std::shared_ptr<collectives::Member> member, std::string group)
    : member_(std::move(member)),
      prefix_(loom::detail::concat("lccl: rank ", member_->rank(), " of group ", group, ": ")),
      transport_(member_),
      mailbox_(member_) {}

void Engine::check_alive(const char* name) const {
  const std::string why = reason();
  TORCH_CHECK_WITH(DistBackendError, why.empty(), prefix_, name, ": the group has ended, since ",
                   why);
}

std::shared_ptr<Engine> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                const std::string& group, std::int64_t deadline_ns) {
  const Meeting meeting(*store, rank);
  store->set(meeting.key("host", rank), host_id());
  for (int peer = 0; peer < ranks; ++peer) {
    const std::string host = store->get_to_str(meeting.key("host", peer));
    TORCH_CHECK_WITH(DistBackendError, host == host_id(), "lccl: expected all ranks on one host, ",
                     "got rank ", peer, " on another one than rank ", rank);
  }
  std::shared_ptr<collectives::Member> member;
  if (rank == 0) {
    collectives::SegmentServer server(ranks);
    member = std::make_shared<collectives::Member>(server.segment(), rank, ranks);
    store->set(meeting.key("segment"), server.name());
    serve(server, store, meeting, rank, ranks, deadline_ns);
  } else {
    try {
      const collectives::Descriptor segment =
          collectives::request_segment(store->get_to_str(meeting.key("segment")), deadline_ns);
      member = std::make_shared<collectives::Member>(segment, rank, ranks);
    } catch (const std::exception& error) {
      store->set(meeting.key("member", rank), error.what());
      throw;
    }
  }
  store->set(meeting.key("member", rank), kAttached);
  for (int peer = 0; peer < ranks; ++peer) {
    const std::string state = store->get_to_str(meeting.key("member", peer));
    TORCH_CHECK_WITH(DistBackendError, state == kAttached, "lccl: rank ", peer,
                     " cannot share memory with rank 0: ", state);
  }
  return std::make_shared<Engine>(std::move(member), group);
}

}  // namespace loom::distributed
