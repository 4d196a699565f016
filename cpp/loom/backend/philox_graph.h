// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A command graph whose random commands draw new numbers at each replay. While it is captured, it
// counts the numbers that commands take from each generator; a command notes how far its own are
// from the first one. Each replay takes as many from the generators themselves, on the caller's
// thread and in program order, and puts their beginnings where the commands look: so a replay draws
// what the captured code would have drawn in its place.
// Thread: reserve() any, during the capture; the others one at a time, after it.

#include "loom/backend/generator.h"
#include "loom/base/export.h"
#include "loom/base/mutex.h"
#include "loom/device/command_graph.h"

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <deque>
#include <vector>

namespace loom {

class LOOM_API PhiloxGraph : public CommandGraph {
 public:
  PhiloxGraph();
  ~PhiloxGraph() override;

  /// Numbers of `generator` for a command that is captured now. Requires: `count` is a multiple
  /// of 4.
  [[nodiscard]] PhiloxRange reserve(const PhiloxGenerator& generator, std::uint64_t count);

  /// Takes the numbers that one replay on `queue` needs, one range for each generator.
  [[nodiscard]] std::vector<PhiloxRange> reserve_replay(const Queue& queue);

  /// Puts what reserve_replay() took where the commands find it. On the worker, before run().
  void set_origins(const std::vector<PhiloxRange>& ranges) noexcept;

 private:
  struct Source {
    c10::intrusive_ptr<c10::GeneratorImpl> generator;  ///< one of our own that shares the state
    std::uint64_t count = 0;                           ///< numbers that a replay takes
    PhiloxOrigin origin;

    [[nodiscard]] PhiloxGenerator& philox() const;
  };

  Mutex mutex_;
  // Filled under the mutex during the capture; elements keep their addresses, which commands know.
  std::deque<Source> sources_;
};

}  // namespace loom
