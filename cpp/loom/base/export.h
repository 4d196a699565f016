// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Symbols are hidden unless marked: LOOM_API stands on what users, the Python module and the tests
// of the torch skin call in libtorch_loom.so.
#define LOOM_API __attribute__((visibility("default")))
