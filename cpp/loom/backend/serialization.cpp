// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/serialization.h"

#include "loom/backend/allocator.h"
#include "loom/backend/device_state.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace loom {
namespace {

constexpr std::string_view kNameKey = "loom.allocation_name:";

/// Bytes of the UTF-8 sequence that starts with `first`, or 0 when none does.
std::size_t sequence_length(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  if (first >= 0xF0 && first < 0xF5) return 4;
  return 0;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = sequence_length(static_cast<unsigned char>(text[i]));
    if (length == 0 || length > text.size() - i) return false;
    const std::string_view rest = text.substr(i + 1, length - 1);
    const bool continues = std::all_of(rest.begin(), rest.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
    });
    if (!continues) return false;
    i += length;
  }
  return true;
}

bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

void check_name(std::string_view name, const char* api) {
  TORCH_CHECK_VALUE(name.size() <= kMaxAllocationName, api,
                    ": expected an allocation name of at most ", kMaxAllocationName, " bytes, got ",
                    name.size());
  TORCH_CHECK_VALUE(is_utf8(name) && !has_control_characters(name), api,
                    ": expected an allocation name in UTF-8 without control characters");
}

void check_tensor(const at::TensorBase& tensor, const char* api) {
  TORCH_CHECK(tensor.defined(), api, ": expected a loom tensor, got an undefined one");
  TORCH_CHECK(tensor.device().type() == kDeviceType, api, ": expected a loom tensor, got one on ",
              tensor.device());
}

/// The address of the tensor's memory, or null (no elements, no storage).
const void* memory_of(const at::TensorBase& tensor) {
  return tensor.has_storage() ? tensor.storage().data_ptr().get() : nullptr;
}

std::optional<BlockSnapshot> block_of(const at::TensorBase& tensor) {
  const void* memory = memory_of(tensor);
  if (memory == nullptr) return std::nullopt;
  return caching_allocator(tensor.device().index()).find(memory);
}

void name_memory(const at::TensorBase& tensor, std::string_view name) {
  if (const void* memory = memory_of(tensor)) {
    caching_allocator(tensor.device().index()).set_name(memory, std::string(name));
  }
  c10::intrusive_ptr<c10::BackendMeta> meta;
  if (!name.empty()) meta = c10::make_intrusive<AllocationMeta>(std::string(name));
  tensor.unsafeGetTensorImpl()->set_backend_meta(std::move(meta));
}

}  // namespace

void set_allocation_name(const at::TensorBase& tensor, std::string_view name) {
  check_tensor(tensor, "set_allocation_name");
  check_name(name, "set_allocation_name");
  name_memory(tensor, name);
}

std::string allocation_name(const at::TensorBase& tensor) {
  check_tensor(tensor, "allocation_name");
  // The allocator knows best: other tensors may share the memory and have renamed it.
  if (const auto block = block_of(tensor)) return block->name;
  const auto meta = tensor.unsafeGetTensorImpl()->get_backend_meta_intrusive_ptr();
  const auto* named = dynamic_cast<const AllocationMeta*>(meta.get());
  return named != nullptr ? named->name : std::string();
}

void save_backend_meta(const at::TensorBase& tensor, MetaMap& map) {
  const std::string name = allocation_name(tensor);
  if (!name.empty()) map[std::string(kNameKey) + name] = true;
}

void load_backend_meta(const at::TensorBase& tensor, const MetaMap& map) {
  check_tensor(tensor, "torch.load");
  TORCH_CHECK_VALUE(map.size() <= 1,
                    "torch.load: expected at most one metadata entry of a loom tensor, got ",
                    map.size());
  for (const auto& [key, value] : map) {
    TORCH_CHECK_VALUE(key.starts_with(kNameKey) && value,
                      "torch.load: expected metadata of a loom tensor ('", kNameKey,
                      "<name>': True), got an entry of another kind; the file was not written by "
                      "this version of torch-loom, or is damaged");
    const std::string_view name = std::string_view(key).substr(kNameKey.size());
    check_name(name, "torch.load");
    name_memory(tensor, name);
  }
}

}  // namespace loom
