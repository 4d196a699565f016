// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The last command of a queue may be open: whoever submitted it may still add to it (operators to a
// fused program) until it is closed. Anything else that is submitted to the queue closes it, as
// does everything that relies on what was submitted so far: waiting for it, recording an event. Its
// worker closes it too, when it has waited long enough for more.

#include "loom/base/export.h"

namespace loom {

class LOOM_API OpenCommand {
 public:
  /// It will not grow any more. Called once, under the lock of the queue's submissions.
  virtual void close() noexcept = 0;

 protected:
  OpenCommand() = default;
  OpenCommand(const OpenCommand&) = default;
  OpenCommand& operator=(const OpenCommand&) = default;
  ~OpenCommand() = default;
};

}  // namespace loom
