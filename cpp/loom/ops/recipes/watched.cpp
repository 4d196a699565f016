// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/recipes/watched.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace loom::ops {

bool is_watched(const at::Tensor& tensor) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kWrappers({DispatchKey::Python, DispatchKey::FuncTorchBatched,
                                           DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched,
                                           DispatchKey::Functionalize});
  if (tensor.defined() && tensor.key_set().has_any(kWrappers)) return true;
  for (const DispatchKey key :
       {DispatchKey::Python, DispatchKey::FuncTorchDynamicLayerFrontMode,
        DispatchKey::FuncTorchDynamicLayerBackMode, DispatchKey::Functionalize}) {
    if (c10::impl::tls_is_dispatch_key_included(key)) return true;
  }
  return false;
}

}  // namespace loom::ops
