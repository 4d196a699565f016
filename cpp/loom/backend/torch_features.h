// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What differs between the versions of torch that loom can be built with, by names of features: no
// other file of C++ compares versions. Each name says what PyTorch changed and since when. When the
// oldest supported torch has a feature, its name and the code for torch without it are removed.

#include <torch/headeronly/version.h>

/// True if the headers are those of this release of torch, or of a later one.
#define LOOM_TORCH_SINCE(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||    \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

// Since 2.14, c10::GeneratorImpl::philox_state() hands out a place in a generator's sequence.
#define LOOM_TORCH_HAS_PHILOX_STATE LOOM_TORCH_SINCE(2, 14)

// Since 2.14, c10d copies the options of a group for the groups that are split off it, by
// c10d::Backend::Options::clone(): without one of its own a class of options loses what it adds.
#define LOOM_TORCH_HAS_BACKEND_OPTIONS_CLONE LOOM_TORCH_SINCE(2, 14)

// Since 2.14, c10d::Work::getTimeout() says how long an operation may take.
#define LOOM_TORCH_HAS_WORK_TIMEOUT LOOM_TORCH_SINCE(2, 14)
