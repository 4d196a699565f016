// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// torch.autograd.profiler.profile(use_device="loom", use_kineto=False): device time of an operator
// as the time between two events on its stream.

namespace loom::profiler {

void register_legacy_stubs();

}  // namespace loom::profiler
