// SPDX-License-Identifier: BSD-3-Clause
// What kernels find on a loom thread, and that no other thread notices.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ParallelGuard.h>

#include "backend/support.h"

namespace loom {
namespace {

using ThreadSetupTest = test::BackendTest;

template <class Function>
void on_worker(Function&& function) {
  current_queue().submit("ask", std::forward<Function>(function));
  current_queue().synchronize();
}

TEST_F(ThreadSetupTest, WorkersAreOneThreadForAten) {
  int threads = 0;
  bool in_parallel = false;
  on_worker([&] {
    threads = at::get_num_threads();
    in_parallel = c10::ParallelGuard::is_enabled();
  });
  EXPECT_EQ(threads, 1);
  EXPECT_TRUE(in_parallel);
}

TEST_F(ThreadSetupTest, WorkersAreBelowAutograd) {
  bool grad = true;
  bool autograd_excluded = false;
  bool view_excluded = false;
  on_worker([&] {
    grad = at::GradMode::is_enabled();
    autograd_excluded =
        c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality);
    view_excluded = c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView);
  });
  EXPECT_FALSE(grad);
  EXPECT_TRUE(autograd_excluded);
  EXPECT_TRUE(view_excluded);
}

TEST_F(ThreadSetupTest, OtherThreadsKeepTheirThreadCount) {
  const int before = at::get_num_threads();
  on_worker([] {});
  EXPECT_EQ(at::get_num_threads(), before);
  int born_later = 0;
  test::on_other_thread([&] { born_later = at::get_num_threads(); });
  EXPECT_EQ(born_later, before);
}

}  // namespace
}  // namespace loom
