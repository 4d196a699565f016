// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Operators that take devices, for graphs that were compiled ahead of time: PyTorch's runtime calls
// operators that such a graph does not know (custom ones, above all), and gives them its own device
// for every device among their arguments. Integers it passes on, so here is, for each of them, an
// operator that takes integers instead. Thread: any.

#include "loom/base/export.h"

#include <string>

namespace loom {

/// Defines an operator like `name` ("namespace::operator.overload", or without ".overload") that
/// takes integers where that takes devices, and calls it. 0 and more are loom's devices, -1 - t is
/// the device of another type t without an index (c10::DeviceType; the cpu is -1).
/// Returns its name, which has the namespace "loom_devices_<namespace>". It stays for as long as
/// the process, and a second call changes nothing.
/// Throws: c10::Error when there is no such operator, or when it takes other arguments than at the
/// first call.
LOOM_API std::string define_with_numbered_devices(const std::string& name);

}  // namespace loom
