// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Loading libtorch_loom.so registers loom with c10 and ATen under the device type PrivateUse1; only
// the name "loom" is left to the program: C++ programs call init(), Python renames the backend with
// torch.utils.rename_privateuse1_backend("loom"). Both may be done, in any order. Thread: any.

#include "loom/base/export.h"

namespace loom {

/// Gives the device type its name, so that torch::Device("loom") works. Starts nothing. Idempotent.
/// Throws: c10::Error when another library is registered as PrivateUse1 in this process;
/// std::runtime_error when the process has another minor version of torch than the library was
/// built for: then nothing is registered.
LOOM_API void init();

/// Stops loom's threads and joins them, for good: what a program does before it returns from main()
/// if commands may use static objects that are destroyed earlier than the exit handler runs which
/// does the same (loom/device/thread.h), or a library before it is unloaded. The command that a
/// stream is at ends; what is still queued is not run: call synchronize() of each device first, if
/// its results or its errors matter. Afterwards memory can be freed, work that is submitted is
/// dropped, waits return at once, and what the host reads of such work is not defined. Idempotent;
/// starts nothing and throws nothing. Not for commands: a stream cannot wait for itself.
LOOM_API void shutdown() noexcept;

/// Lets libraries that are loaded from now on find the functions of this one, which code that is
/// generated for loom calls: Python loads modules, and so this library, with symbols that only the
/// module sees. Idempotent. Throws: c10::Error when the dynamic loader refuses.
LOOM_API void make_symbols_global();

/// As init(), without the naming: throws when the registration at load time did not succeed.
LOOM_API void check_registered();

}  // namespace loom
