// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Why an exchange with other ranks did not come to its end. Thread: any.

#include "loom/base/check.h"

#include <string>
#include <utility>

namespace loom::collectives {

class LOOM_API PeerError : public Error {
 public:
  enum class Cause {
    kTimeout,   ///< a rank did not come in time
    kLost,      ///< the process of a rank is gone
    kAborted,   ///< a rank, perhaps this one, has aborted the group
    kMismatch,  ///< ranks do not run the same operation
    kExit,      ///< this process ends
  };
  PeerError(Cause cause, const std::string& what) : Error(what), cause_(cause) {}
  [[nodiscard]] Cause cause() const noexcept { return cause_; }

 private:
  Cause cause_;
};

}  // namespace loom::collectives
