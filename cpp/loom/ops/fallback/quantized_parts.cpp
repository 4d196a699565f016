// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/fallback/quantized_parts.h"

#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include <type_traits>
#include <utility>

namespace loom::ops {

at::QuantizerPtr quantizer_of(const at::Tensor& tensor) {
  return tensor.is_quantized() ? at::get_qtensorimpl(tensor)->quantizer() : at::QuantizerPtr();
}

void set_quantizer(const at::Tensor& tensor, at::QuantizerPtr quantizer) {
  at::get_qtensorimpl(tensor)->set_quantizer_(std::move(quantizer));
}

at::QuantizerPtr map_quantizer(const at::QuantizerPtr& quantizer, MapPart map) {
  const auto* channels = dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
  if (channels == nullptr) return quantizer;  // one scale, or none known yet: numbers only
  at::Tensor scales = map(channels->scales());
  at::Tensor zero_points = map(channels->zero_points());
  const auto make = [&]<typename Kind>(std::type_identity<Kind>) -> at::QuantizerPtr {
    return c10::make_intrusive<Kind>(channels->scalar_type(), std::move(scales),
                                     std::move(zero_points), channels->axis());
  };
  return channels->qscheme() == at::kPerChannelAffineFloatQParams
             ? make(std::type_identity<at::PerChannelAffineFloatQParamsQuantizer>{})
             : make(std::type_identity<at::PerChannelAffineQuantizer>{});
}

at::Tensor make_quantized(const at::Tensor& like, c10::Storage storage, std::int64_t storage_offset,
                          at::QuantizerPtr quantizer) {
  const c10::DispatchKey key = storage.device().is_cpu() ? c10::DispatchKey::QuantizedCPU
                                                         : c10::DispatchKey::QuantizedPrivateUse1;
  at::Tensor tensor = at::detail::make_tensor<at::QTensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype(), std::move(quantizer));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), storage_offset);
  return tensor;
}

}  // namespace loom::ops
