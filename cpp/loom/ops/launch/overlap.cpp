// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/overlap.h"

#include "loom/ops/launch/tensor_lists.h"

#include <ATen/MemoryOverlap.h>

namespace loom::ops {
namespace {

using Status = at::MemOverlapStatus;

Status overlap(const at::Tensor& written, const at::Tensor& other) {
  if (!other.defined() || !other.has_storage() || !written.storage().is_alias_of(other.storage())) {
    return Status::No;
  }
  return at::get_overlap_status(written, other);
}

bool overlaps_itself(const at::Tensor& tensor) {
  return at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

}  // namespace

bool operands_overlap(std::span<const at::Tensor* const> operands, WrittenRange written,
                      bool may_coincide) {
  for (std::size_t w = written.first; w < written.first + written.count; ++w) {
    const at::Tensor& to = *operands[w];
    if (!to.defined() || !to.has_storage()) continue;
    if (overlaps_itself(to)) return true;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (i == w || operands[i] == nullptr) continue;
      const Status status = overlap(to, *operands[i]);
      if (status == Status::Partial || (status == Status::Full && !may_coincide)) return true;
    }
  }
  return false;
}

bool arguments_overlap(std::span<const c10::IValue> arguments, const std::vector<bool>& writes) {
  bool found = false;
  const auto compare = [&](std::size_t w, const at::Tensor& to) {
    if (!to.defined() || !to.has_storage()) return;
    found = found || overlaps_itself(to);
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (i == w) continue;
      for_each_tensor(arguments[i], [&](const at::Tensor& other) {
        const Status status = overlap(to, other);
        found = found || status == Status::Full || status == Status::Partial;
      });
    }
  };
  for (std::size_t w = 0; w < arguments.size(); ++w) {
    if (writes[w]) {
      for_each_tensor(arguments[w], [&](const at::Tensor& to) { compare(w, to); });
    }
  }
  return found;
}

}  // namespace loom::ops
