// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which queues wait for which, in a build with LOOM_LOCK_CHECKS=ON (base/lock_checks.h): waits that
// close a circle are reported when the last of them is submitted, or begun by a command, and the
// process aborts, where it would stop for ever. Otherwise all of it is empty. Thread: any.

#include "loom/base/export.h"

#include <cstdint>

namespace loom {

class Queue;
class Timeline;

namespace wait_graph {

#ifdef LOOM_LOCK_CHECKS

/// Command `own` of `queue` waits until `other` reaches `position`, maybe among other things.
LOOM_API void add(const Queue& queue, std::uint64_t own, const Timeline& other,
                  std::uint64_t position) noexcept;
/// The calling thread waits: as add() for the command that it runs, if it is a queue's worker.
LOOM_API void waits(const Timeline& other, std::uint64_t position) noexcept;
/// The queue goes.
LOOM_API void forget(const Queue& queue) noexcept;

#else

inline void add(const Queue& /*queue*/, std::uint64_t /*own*/, const Timeline& /*other*/,
                std::uint64_t /*position*/) noexcept {}
inline void waits(const Timeline& /*other*/, std::uint64_t /*position*/) noexcept {}
inline void forget(const Queue& /*queue*/) noexcept {}

#endif

}  // namespace wait_graph
}  // namespace loom
