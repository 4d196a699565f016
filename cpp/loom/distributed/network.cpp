// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/network.h"

#include "loom/base/mutex.h"
#include "loom/base/process_state.h"
#include "loom/distributed/message_channel.h"

#include <c10/util/Exception.h>

#include <exception>
#include <utility>

namespace loom::distributed {
namespace {

struct Factory {
  Mutex mutex;
  NetworkFactory make LOOM_GUARDED_BY(mutex);
};

// Leaked: what it holds may be Python's, which ends earlier.
Factory& factory() {
  static auto* const instance = new Factory;
  return *instance;
}

NetworkFactory get_factory() {
  Factory& all = factory();
  MutexLock lock(all.mutex);
  return all.make;
}

}  // namespace

void set_network_factory(NetworkFactory make) {
  Factory& all = factory();
  MutexLock lock(all.mutex);
  all.make = std::move(make);
}

Network::Network(std::shared_ptr<collectives::Member> member,
                 const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout) {
  const NetworkFactory make = get_factory();
  TORCH_CHECK_WITH(DistBackendError, make != nullptr, "lccl: expected all ranks on one host, or a ",
                   "call of set_network_factory() before, got ranks on several hosts");
  try {
    backend_ = make(store, member->rank(), member->ranks(), timeout);
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "lccl: rank ", member->rank(),
                     " cannot connect to ranks on other hosts: ", error.what());
  }
  for (int peer = 0; peer < member->ranks(); ++peer) {
    if (member->remote(peer) == nullptr) continue;
    carriers_.push_back(std::make_unique<collectives::Carrier>(
        member, peer, std::make_unique<MessageChannel>(backend_, peer)));
  }
}

Network::~Network() {
  if (in_bad_fork()) {
    // The threads of all this are the parent's.
    for (auto& carrier : carriers_) static_cast<void>(carrier.release());
    static_cast<void>(backend_.release());
    return;
  }
  leave();
}

void Network::leave() noexcept {
  if (in_bad_fork()) return;
  for (const auto& carrier : carriers_) carrier->leave();
}

}  // namespace loom::distributed
