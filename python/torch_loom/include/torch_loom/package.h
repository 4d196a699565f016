// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a graph that is compiled ahead of time has beside PyTorch's runtime for such libraries,
// which knows no loom: constants in the device's memory, and checks of where inputs lie. It becomes
// part of the library in a package; libtorch_loom's runner (loom/ops/package_runner.h) calls the
// functions at the end. The generated code says before whether the library holds the weights,
// loom_package::kHasWeights. Thread: as the runtime's functions of the same purpose.

#include <torch/csrc/inductor/aoti_runtime/model_container.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

extern "C" void loom_kernel_synchronize(std::int64_t device);

namespace loom_package {

using torch::aot_inductor::AOTInductorModel;
using torch::aot_inductor::AOTInductorModelContainer;
using torch::aot_inductor::ConstantHandle;
using torch::aot_inductor::ConstantMap;
using torch::aot_inductor::RAIIAtenTensorHandle;
using Handles = std::unordered_map<std::string, AtenTensorHandle>;

struct Device {
  std::int32_t type;
  std::int32_t index;
  bool operator==(const Device&) const = default;
};

inline Device loom(std::int32_t index) { return {aoti_torch_device_type_privateuse1(), index}; }

inline Device device_of(AtenTensorHandle tensor) {
  Device device{};
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor, &device.type));
  AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &device.index));
  return device;
}

inline std::string name_of(Device device) {
  if (device.type == aoti_torch_device_type_cpu()) return "cpu";
  if (device.type != aoti_torch_device_type_privateuse1()) return "another device";
  return "loom:" + std::to_string(device.index);
}

/// A tensor on another device would be read where its values are not.
inline void check_device(const std::string& what, AtenTensorHandle tensor, Device expected) {
  const Device found = device_of(tensor);
  if (found.type == expected.type && (found.index == expected.index || found.index < 0)) return;
  throw std::runtime_error("package: expected " + what + " on " + name_of(expected) +
                           ", got a tensor on " + name_of(found));
}

inline void check_input(std::int64_t number, AtenTensorHandle tensor, Device expected) {
  check_device("input " + std::to_string(number), tensor, expected);
}

/// Tensors that belong to nobody yet.
class OwnedHandles {
 public:
  OwnedHandles() = default;
  ~OwnedHandles() {
    for (const auto& [name, handle] : handles_) aoti_torch_delete_tensor_object(handle);
  }
  OwnedHandles(const OwnedHandles&) = delete;
  OwnedHandles& operator=(const OwnedHandles&) = delete;
  void add(const char* name, AtenTensorHandle handle) { handles_.emplace(name, handle); }
  Handles release() { return std::exchange(handles_, {}); }

 private:
  Handles handles_;
};

/// The constants of the model in this library: what PyTorch's runtime knows of them, and the bytes.
class Constants final : public AOTInductorModel {
 public:
  Constants()
      : AOTInductorModel(std::make_shared<ConstantMap>(),
                         std::make_shared<std::vector<ConstantHandle>>(), "cpu", std::nullopt) {}

  /// Adds new tensors on loom:`device`, or on the cpu where they were there.
  void copy_to(std::int32_t device, OwnedHandles& copies) {
    const std::uint8_t* bytes = num_constants() == 0 ? nullptr : _get_constants_start();
    for (std::size_t i = 0; i < num_constants(); ++i) {
      const auto id = static_cast<std::int64_t>(i);
      if (constant_from_folded(id)) continue;
      const RAIIAtenTensorHandle stored(view(id, const_cast<std::uint8_t*>(bytes)));
      copies.add(constant_name(id), copy(id, stored.get(), place(id, device)));
      bytes += constant_data_size(id);
    }
  }

  /// A copy of what shall be constant `id` from now on.
  AtenTensorHandle copy(std::int64_t id, AtenTensorHandle from, Device to) {
    check_geometry(id, from);
    AtenTensorHandle made = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
        static_cast<std::int64_t>(constant_ndim(id)), constant_shape(id), constant_stride(id),
        constant_dtype(id), to.type, to.index, &made));
    RAIIAtenTensorHandle owner(made);
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(made, from, 0));
    return owner.release();
  }

  Device place(std::int64_t id, std::int32_t device) const {
    return constant_device_type(id) == aoti_torch_device_type_cpu()
               ? Device{aoti_torch_device_type_cpu(), 0}
               : loom(device);
  }

  /// Generated kernels read as many elements as the constant had, of its dtype.
  void check_geometry(std::int64_t id, AtenTensorHandle tensor) {
    std::int64_t dim = 0;
    std::int64_t* sizes = nullptr;
    std::int32_t dtype = 0;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor, &dim));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor, &sizes));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor, &dtype));
    const std::vector<std::int64_t> found(sizes, sizes + dim);
    const std::vector<std::int64_t> expected(constant_shape(id),
                                             constant_shape(id) + constant_ndim(id));
    if (found == expected && dtype == constant_dtype(id)) return;
    throw std::runtime_error("package: expected " + std::string(constant_original_fqn(id)) +
                             " of shape " + text(expected) + ", got a tensor of shape " +
                             text(found) + (found == expected ? " and of another dtype" : ""));
  }

 private:
  AtenTensorHandle view(std::int64_t id, std::uint8_t* bytes) {
    AtenTensorHandle tensor = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob_v2(
        bytes, static_cast<std::int64_t>(constant_ndim(id)), constant_shape(id),
        constant_stride(id), constant_offset(id), constant_dtype(id), aoti_torch_device_type_cpu(),
        0, &tensor, constant_layout(id), opaque_metadata(id),
        static_cast<std::int64_t>(opaque_metadata_size(id))));
    return tensor;
  }

  static std::string text(const std::vector<std::int64_t>& sizes) {
    std::string result = "[";
    for (const std::int64_t size : sizes) {
      result += (result.size() > 1 ? ", " : "") + std::to_string(size);
    }
    return result + "]";
  }
};

inline AOTInductorModelContainer& container_of(AOTInductorModelContainerHandle handle) {
  return *reinterpret_cast<AOTInductorModelContainer*>(handle);
}

/// For which device containers were made: the runtime keeps it to itself.
class DeviceIndices {
 public:
  static void set(const AOTInductorModelContainer& container, std::int32_t device) {
    const std::lock_guard lock(mutex_);
    indices_[&container] = device;
  }
  static std::int32_t get(const AOTInductorModelContainer& container) {
    const std::lock_guard lock(mutex_);
    return indices_.at(&container);
  }

 private:
  inline static std::mutex mutex_;
  inline static std::unordered_map<const AOTInductorModelContainer*, std::int32_t> indices_;
};

inline void load(AOTInductorModelContainer& container, std::int32_t device) {
  DeviceIndices::set(container, device);
  if constexpr (!kHasWeights) return;
  OwnedHandles made;
  Constants().copy_to(device, made);
  loom_kernel_synchronize(device);  // runs of all streams read them
  container.update_constant_buffer(made.release(), false, false);
}

/// Puts copies of the given tensors, wherever they lie, in the place of constants. The set that is
/// not in use gets what is not given from the other one.
inline void update(AOTInductorModelContainer& container, const Handles& given, bool use_inactive,
                   bool validate) {
  if (validate) container.assert_all_constants(given);
  Constants constants;
  const std::int32_t device = DeviceIndices::get(container);
  const Handles active = container.extract_constants_map(false);
  OwnedHandles made;
  for (std::size_t i = 0; i < constants.num_constants(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    auto from = given.find(constants.constant_name(id));
    if (from == given.end()) {
      from = active.find(constants.constant_original_fqn(id));
      if (!use_inactive || from == active.end()) continue;
    }
    const Device place = constants.place(id, device);
    made.add(constants.constant_name(id), constants.copy(id, from->second, place));
  }
  loom_kernel_synchronize(device);  // other streams may read the old ones, and will the new ones
  container.update_constant_buffer(made.release(), use_inactive, false);
}

/// Puts the given tensors themselves in the place of constants.
inline void lend(AOTInductorModelContainer& container, const Handles& given, bool use_inactive,
                 bool validate) {
  Constants constants;
  const std::int32_t device = DeviceIndices::get(container);
  for (std::size_t i = 0; i < constants.num_constants(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    const auto from = given.find(constants.constant_name(id));
    if (from == given.end()) continue;
    constants.check_geometry(id, from->second);
    check_device(constants.constant_original_fqn(id), from->second, constants.place(id, device));
  }
  container.update_constant_buffer(given, use_inactive, validate, /*user_managed=*/true);
}

/// A package without weights is given them before its first run.
inline void check_loaded(const std::vector<ConstantHandle>& constants) {
  for (const ConstantHandle& constant : constants) {
    if (constant.get() != nullptr) continue;
    throw std::runtime_error(
        "package: expected load_constants() before the first run, since the weights are not in "
        "the package's library");
  }
}

}  // namespace loom_package

extern "C" {

/// The operators that are called with numbered devices (loom/ops/numbered_devices.h), then null.
/// The generated code defines it.
AOTI_API const char* const* loom_package_operators();

/// What libtorch_loom expects of a package.
AOTI_API std::int64_t loom_package_interface() { return 2; }

AOTI_API AOTIRuntimeError loom_package_load_constants(AOTInductorModelContainerHandle container,
                                                      std::int32_t device) {
  CONVERT_EXCEPTION_TO_ERROR_CODE(
      { loom_package::load(loom_package::container_of(container), device); });
}

AOTI_API AOTIRuntimeError loom_package_update_constants(AOTInductorModelContainerHandle container,
                                                        AOTInductorConstantMapHandle constants,
                                                        bool use_inactive, bool validate) {
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    const auto& given = *reinterpret_cast<const loom_package::Handles*>(constants);
    loom_package::update(loom_package::container_of(container), given, use_inactive, validate);
  });
}

AOTI_API AOTIRuntimeError loom_package_update_inactive_constants(
    AOTInductorModelContainerHandle container, AOTInductorConstantMapHandle constants) {
  return loom_package_update_constants(container, constants, true, true);
}

AOTI_API AOTIRuntimeError loom_package_lend_constants(AOTInductorModelContainerHandle container,
                                                      AOTInductorConstantMapHandle constants,
                                                      bool use_inactive, bool validate) {
  CONVERT_EXCEPTION_TO_ERROR_CODE({
    const auto& given = *reinterpret_cast<const loom_package::Handles*>(constants);
    loom_package::lend(loom_package::container_of(container), given, use_inactive, validate);
  });
}

}  // extern "C"
