// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a graph includes that is compiled ahead of time, by the name that Inductor gives it.

#include <torch/csrc/inductor/aoti_include/common.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_loom.h>
