// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Names of allocations. A user may name a tensor's memory; the name stands in memory snapshots and
// fault messages, and travels with the tensor through torch.save and torch.load as its backend
// metadata. Thread: any, as for other changes of a tensor.

#include "loom/base/export.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace loom {

/// The backend metadata of a loom tensor. Immutable, so that copies may share it.
struct LOOM_API AllocationMeta final : c10::BackendMeta {
  explicit AllocationMeta(std::string allocation_name) : name(std::move(allocation_name)) {}
  const std::string name;
};

/// Bytes that a name may have.
inline constexpr std::size_t kMaxAllocationName = 256;

/// Names the memory of a loom tensor; an empty name takes the name away.
/// Throws: c10::Error for a tensor of another device, ValueError for a name that is too long or
/// has control characters.
LOOM_API void set_allocation_name(const at::TensorBase& tensor, std::string_view name);

/// The name of the tensor's memory, or empty.
[[nodiscard]] LOOM_API std::string allocation_name(const at::TensorBase& tensor);

/// What torch.save writes beside a loom tensor. The only type of value there is bool, so the name
/// is part of a key.
using MetaMap = std::unordered_map<std::string, bool>;
LOOM_API void save_backend_meta(const at::TensorBase& tensor, MetaMap& map);
/// Throws: ValueError for entries that save_backend_meta() cannot have written.
LOOM_API void load_backend_meta(const at::TensorBase& tensor, const MetaMap& map);

}  // namespace loom
