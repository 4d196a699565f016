// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a graph includes that Inductor compiles to C++ (cpp_wrapper), by the name that it has there.

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_loom.h>
#include <torch/csrc/inductor/cpp_wrapper/common.h>
