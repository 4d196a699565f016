// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/engine.h"

#include "loom/base/check.h"
#include "loom/collectives/peer_error.h"
#include "loom/distributed/deadline.h"
#include "loom/distributed/meeting.h"

#include <c10/util/Exception.h>

#include <utility>

namespace loom::distributed {
Engine::Engine(std::shared_ptr<collectives::Member> member, std::unique_ptr<Network> network,
               const std::string& group)
    : member_(std::move(member)),
      prefix_(loom::detail::concat("lccl: rank ", member_->rank(), " of group ", group, ": ")),
      transport_(member_),
      mailbox_(member_),
      network_(std::move(network)) {}

void Engine::check_alive(const char* name) const {
  const std::string why = reason();
  TORCH_CHECK_WITH(DistBackendError, why.empty(), prefix_, name, ": the group has ended, since ",
                   why);
}

std::string Engine::unread() {
  try {
    if (reason().empty()) transport_.check_unread();
    return {};
  } catch (const collectives::PeerError& error) {
    return prefix_ + error.what();
  }
}

std::shared_ptr<Engine> connect(const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                                const std::string& group, std::int64_t deadline_ns) {
  Meeting meeting(store, rank, ranks, deadline_ns);
  std::shared_ptr<collectives::Member> member = meeting.meet();
  std::unique_ptr<Network> network;
  if (meeting.has_hosts()) {
    network =
        std::make_unique<Network>(member, meeting.store_for("network"), left_until(deadline_ns));
  }
  return std::make_shared<Engine>(std::move(member), std::move(network), group);
}

}  // namespace loom::distributed
