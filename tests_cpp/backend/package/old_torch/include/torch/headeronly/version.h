// SPDX-License-Identifier: BSD-3-Clause
// A torch that is too old, as far as loom's CMake package looks at it.
#pragma once

#define TORCH_VERSION_MAJOR 2
#define TORCH_VERSION_MINOR 12
#define TORCH_VERSION_PATCH 0
