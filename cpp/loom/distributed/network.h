// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A group's connections to ranks on other hosts, over a backend of c10d that sends and receives:
// Gloo, whose headers torch does not ship, so who knows how to make one says so.
// Thread: any; a Network as Carrier.

#include "loom/base/export.h"
#include "loom/collectives/carrier.h"
#include "loom/collectives/segment.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace loom::distributed {

/// Makes a backend that connects all ranks of a group; called by all of them.
using NetworkFactory = std::function<c10::intrusive_ptr<c10d::Backend>(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
    std::chrono::milliseconds timeout)>;

/// Sets how connections to other hosts are made; the package torch_loom sets Gloo's.
LOOM_API void set_network_factory(NetworkFactory factory);

class Network {
 public:
  /// Connects to the remote ranks of `member`; called by all ranks of the group.
  /// Throws: c10::DistBackendError when there is no factory, or it fails.
  Network(std::shared_ptr<collectives::Member> member, const c10::intrusive_ptr<c10d::Store>& store,
          std::chrono::milliseconds timeout);
  /// As leave(), and waits for the answers, a second at most.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// Tells ranks on other hosts that this one takes part in nothing more.
  void leave() noexcept;

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
  std::vector<std::unique_ptr<collectives::Carrier>> carriers_;
};

}  // namespace loom::distributed
