// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How the ranks of one host come to open the same segment: one makes it and waits at a socket of
// the host's abstract namespace, under a name that nobody guesses, and hands its descriptor to
// whoever comes. It works between containers that share their network, whatever they do with
// /dev/shm and process ids; where it does not, connecting fails. Thread: one at a time.

#include "loom/base/export.h"
#include "loom/collectives/segment.h"

#include <cstdint>
#include <string>

namespace loom::collectives {

class LOOM_API SegmentServer {
 public:
  /// Makes a segment for so many ranks. Throws: std::system_error when the system refuses.
  explicit SegmentServer(int ranks);

  /// Under which others ask for it.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const Descriptor& segment() const noexcept { return segment_; }

  /// Hands the segment to one process of this user. Returns false when nobody has taken it until
  /// `deadline_ns` (steady clock). Throws: std::system_error.
  [[nodiscard]] bool serve_one(std::int64_t deadline_ns);

 private:
  Descriptor segment_, socket_;
  std::string name_;
};

/// Asks for the segment of that name. Throws: std::system_error when there is no such server on
/// this host, or nothing comes until `deadline_ns`.
[[nodiscard]] LOOM_API Descriptor request_segment(const std::string& name,
                                                  std::int64_t deadline_ns);

}  // namespace loom::collectives
