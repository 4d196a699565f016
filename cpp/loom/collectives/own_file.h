// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// An opening of a file that belongs to this process alone: a child that is forked from it closes
// it at once. Locks belong to openings, so they end with the process, and not with the last of its
// children (the workers of a DataLoader). Thread: any, an object one at a time.

#include "loom/base/export.h"

#include <string>

namespace loom::collectives {

class LOOM_API OwnFile {
 public:
  /// Opens it for reading and writing. Throws: std::system_error when the system refuses.
  explicit OwnFile(const std::string& path);
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  /// The descriptor; -1 in a forked child.
  [[nodiscard]] int get() const noexcept;

 private:
  const int value_;
};

}  // namespace loom::collectives
