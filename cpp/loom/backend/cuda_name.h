// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Loom under the name of CUDA: while it is on, the device string "cuda" means a loom device, and
// loom devices print as "cuda". docs/design/cuda-names.md says why this is done at all.
//
// c10 turns names into devices and back in two functions, which all libraries of PyTorch and of its
// extensions import. Their import tables are redirected once and stay so; a flag decides.
// The name belongs to the process: worker threads and those of autograd see what the program sees.
// Thread: any.

#include "loom/base/export.h"

#include <cstddef>

namespace loom::cuda_name {

/// Makes ready for set_on(), also in libraries that were loaded since the last call; cheap if there
/// are none. Returns how many entries of import tables were redirected.
/// Throws: c10::Error where import tables cannot be redirected; names are then as they were.
LOOM_API std::size_t redirect();

/// Turns the name on or off for the whole process. Requires: redirect().
LOOM_API void set_on(bool on) noexcept;

[[nodiscard]] LOOM_API bool is_on() noexcept;

/// What messages call the device where PyTorch's begin with "CUDA", which programs look for.
[[nodiscard]] LOOM_API const char* in_messages() noexcept;

/// While an object exists, loom devices print as "loom" in the calling thread. "cuda" is still
/// understood. For compilers, which choose how to generate code by the name.
class LOOM_API Hush {
 public:
  Hush() noexcept;
  ~Hush();
  Hush(const Hush&) = delete;
  Hush& operator=(const Hush&) = delete;
};

}  // namespace loom::cuda_name
