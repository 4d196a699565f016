// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Runs ATen's CPU kernels on a thread of the host without making it a second OpenMP master: on the
// process's first thread, which owns that team already, with the process's own settings; on every
// other one (autograd's threads, the user's) serially. A second thread that has run a parallel
// region slows every later region of the first one, even when idle.
// Thread: an object belongs to the thread that made it; it changes nothing for others.

#include <c10/util/ParallelGuard.h>

#include <optional>

namespace loom::ops {

class HostRegion {
 public:
  HostRegion();
  ~HostRegion();
  HostRegion(const HostRegion&) = delete;
  HostRegion& operator=(const HostRegion&) = delete;

 private:
  const bool serial_;
  int openmp_threads_ = 0, mkl_threads_ = 0;
  // Makes at::parallel_for run inline.
  std::optional<c10::ParallelGuard> guard_;
};

}  // namespace loom::ops
