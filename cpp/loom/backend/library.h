// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Loading libtorch_loom.so registers loom with c10 and ATen under the device type PrivateUse1; only
// the name "loom" is left to the program: C++ programs call init(), Python renames the backend with
// torch.utils.rename_privateuse1_backend("loom"). Both may be done, in any order. Thread: any.

#include "loom/base/export.h"

namespace loom {

/// Gives the device type its name, so that torch::Device("loom") works. Starts nothing. Idempotent.
/// Throws: c10::Error when another library is registered as PrivateUse1 in this process.
LOOM_API void init();

/// As init(), without the naming: throws when the registration at load time did not succeed.
LOOM_API void check_registered();

}  // namespace loom
