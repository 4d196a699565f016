// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/host_region.h"

#include <omp.h>
#include <unistd.h>

// Exported by a libtorch_cpu that has MKL (on x86 it does, elsewhere the weak symbol is null): sets
// the calling thread's number of MKL threads (0 = the process's) and returns the previous setting.
extern "C" __attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);

namespace loom::ops {
namespace {

bool on_first_thread() { return ::getpid() == ::gettid(); }

}  // namespace

HostRegion::HostRegion() : serial_(!on_first_thread()) {
  if (!serial_) return;
  openmp_threads_ = omp_get_max_threads();
  omp_set_num_threads(1);
  if (MKL_Set_Num_Threads_Local != nullptr) mkl_threads_ = MKL_Set_Num_Threads_Local(1);
  guard_.emplace(true);
}

HostRegion::~HostRegion() {
  if (!serial_) return;
  guard_.reset();
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_threads_);
  omp_set_num_threads(openmp_threads_);
}

}  // namespace loom::ops
