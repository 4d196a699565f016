// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Host memory that a command keeps, and that a worker must not drop: what frees it may be Python's
// and want the GIL. Dropped on a thread of loom, it is kept until a host thread has waited for
// values (host_notice.h), or works on a graph. What is left when the process ends is not freed.
// Thread: any.

#include "loom/base/export.h"

#include <c10/core/Storage.h>

#include <utility>

namespace loom {

class LOOM_API KeptStorage {
 public:
  KeptStorage() = default;
  explicit KeptStorage(c10::Storage storage) noexcept : storage_(std::move(storage)) {}
  ~KeptStorage();
  KeptStorage(KeptStorage&&) noexcept = default;
  KeptStorage& operator=(KeptStorage&&) = delete;
  KeptStorage(const KeptStorage&) = delete;
  KeptStorage& operator=(const KeptStorage&) = delete;

 private:
  c10::Storage storage_;
};

/// Frees what threads of loom have dropped. Requires: a host thread that holds no lock.
LOOM_API void release_kept_storages();

}  // namespace loom
