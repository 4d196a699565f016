// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a command threw on a worker is thrown again at a synchronisation, far from the operator that
// caused it. The annotator here adds the operator's name and place to PyTorch's exceptions and
// keeps their type, so that Python sees an IndexError where a kernel raised one. Private to
// backend/.

#include "loom/device/queue.h"

#include <exception>
#include <string>

namespace loom {

/// An ErrorAnnotator (queue.h). Called on workers; adds to a c10::Error in place, turns a
/// loom::Error into a c10::Error, and leaves everything else to the queue.
[[nodiscard]] AnnotatedError annotate_error(const std::exception_ptr& error,
                                            const std::string& origin);

}  // namespace loom
