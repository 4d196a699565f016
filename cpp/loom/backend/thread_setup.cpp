// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/thread_setup.h"

#include "loom/backend/kernel_warnings.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/ParallelGuard.h>

// From the libgomp and the MKL that libtorch itself uses; weak, since a libtorch may lack either.
// Both set the calling thread only. at::set_num_threads(1) would not do: it also becomes the
// default of every thread born later.
extern "C" {
__attribute__((weak)) void omp_set_num_threads(int count);
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int count);
}

namespace loom {

void run_loom_thread(void (*body)(void*), void* context) {
  // ATen sets a thread up at its first such call, and would undo what follows.
  static_cast<void>(at::get_num_threads());
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(1);
  const c10::ParallelGuard parallel_region(true);  // at::parallel_for stays on this thread
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::NoGradGuard no_grad;
  const c10::WarningUtils::WarningHandlerGuard warnings(&kernel_warning_handler());
  body(context);
}

}  // namespace loom
