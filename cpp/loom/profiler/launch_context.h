// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which operator and which record_function() range each thread is in. PyTorch announces both on the
// thread that enters and leaves them, backward passes included; a launch notes the innermost.
// Thread: each function concerns the calling thread only.

#include <cstdint>

namespace loom::profiler {

enum class ContextKind { kOperation, kAnnotation };

/// What was entered in an earlier session is forgotten.
void enter_context(std::uint64_t session, ContextKind kind, std::uint64_t id);

/// Leaves the innermost one; ignored when it was not entered in this session.
void leave_context(std::uint64_t session, ContextKind kind);

}  // namespace loom::profiler
