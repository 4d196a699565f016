// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The public C++ interface of torch-loom: call loom::init() once, then use torch::Device("loom") as
// any device. Streams, events and memory statistics follow torch.cuda's names and meaning.

#include "loom/backend/device_state.h"
#include "loom/backend/event.h"
#include "loom/backend/library.h"
#include "loom/backend/memory_stats.h"
#include "loom/backend/seed.h"
#include "loom/backend/stream.h"
