// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/launch/host_view.h"

#include "loom/backend/device_state.h"
#include "loom/backend/stream.h"
#include "loom/base/options.h"
#include "loom/device/device.h"
#include "loom/device/failed_memory.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <functional>
#include <memory>
#include <utility>

namespace loom::ops {
namespace {

void check(const at::Tensor& tensor, c10::DeviceType type, const char* api) {
  TORCH_CHECK(tensor.device().type() == type && tensor.layout() == c10::kStrided, api,
              ": expected a strided tensor on ", c10::DeviceTypeName(type, /*lower_case=*/true),
              ", got one on ", tensor.device(), " with layout ", tensor.layout());
  TORCH_CHECK_VALUE(memory_is_unified(), api,
                    ": expected unified memory, but LOOM_MEMORY=isolated keeps the memory of the "
                    "device apart from the host's; copy the tensor instead");
}

/// The elements of `tensor`, whichever part of its storage they are.
at::Tensor over_same_memory(void* data, const at::Tensor& tensor,
                            std::function<void(void*)> release, c10::Device device) {
  return at::from_blob(data, tensor.sizes(), tensor.strides(), std::move(release),
                       tensor.options().device(device).requires_grad(false), device);
}

/// Memory that both sees: in unified memory commands list it by the address that the host knows.
std::shared_ptr<HostVisible> visible_range(const at::Tensor& tensor) {
  AccessList list;
  TensorRef::of_host(tensor).append_access(list, AccessKind::kRead);
  if (list.empty()) return nullptr;
  return std::make_shared<HostVisible>(list[0].address, list[0].bytes);
}

}  // namespace

bool memory_is_unified() { return options().memory == MemoryMode::kUnified; }

at::Tensor view_on_host(const at::Tensor& tensor) {
  check(tensor, kDeviceType, "view_on_host");
  Queue& queue = current_queue(tensor.device().index());
  queue.check_not_captured("A view on the host",
                           "the host looks at values that are not computed before the replay");
  queue.synchronize();
  TensorRef(tensor).check_values();
  return over_same_memory(
      tensor.data_ptr(), tensor,
      [kept = tensor.detach(), visible = visible_range(tensor)](void*) mutable {
        visible.reset();
        kept.reset();
      },
      c10::kCPU);
}

at::Tensor view_on_device(const at::Tensor& host, c10::Device target) {
  check(host, c10::kCPU, "view_on_device");
  Device* const user = &device(target.index());
  const auto release = [kept = host.detach(), user, visible = visible_range(host)](void*) mutable {
    if (!in_bad_fork()) user->drain();
    visible.reset();
    kept.reset();
  };
  return over_same_memory(host.data_ptr(), host, release, target);
}

}  // namespace loom::ops
