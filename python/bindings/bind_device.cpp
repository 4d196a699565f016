// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/backward_thread.h"
#include "loom/backend/device_state.h"
#include "loom/base/check.h"
#include "loom/base/options.h"
#include "loom/device/core_limit.h"
#include "loom/device/device.h"
#include "loom/device/properties.h"
#include "loom/device/thread.h"

#include <torch/csrc/utils/device_lazy_init.h>

#include "bindings.h"
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace py = pybind11;

namespace loom::python {
namespace {

void initialize() {
  check_not_forked();
  (void)options();  // a bad LOOM_* variable is reported before anything starts
  // So that a forked child asks again instead of inheriting "initialised".
  torch::utils::register_fork_handler_for_device_init(kDeviceType);
}

bool is_in_bad_fork() { return in_bad_fork() || torch::utils::is_device_in_bad_fork(kDeviceType); }

const DeviceProperties& properties_of(c10::DeviceIndex index) {
  return device(resolve_device(index, "torch.loom.get_device_properties")).properties();
}

/// Waits for everything submitted; errors are left to who synchronises. A command of a queue cannot
/// wait for its own end.
void drain_devices() {
  if (!device_in_use() || in_bad_fork() || exiting() || on_loom_thread()) return;
  for (c10::DeviceIndex index = 0; index < device_count(); ++index) device(index).drain();
}

/// The cores that a kernel of the device may run on.
int used_cores(c10::DeviceIndex index) {
  return std::min(properties_of(index).core_count, core_limit());
}

std::vector<std::tuple<std::string, std::string, std::string>> option_rows() {
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const OptionInfo& option : option_table()) {
    rows.emplace_back(option.name, option.default_value, option.help);
  }
  return rows;
}

std::string describe(const DeviceProperties& properties) {
  return detail::concat("_LoomDeviceProperties(name='", properties.name,
                        "', core_count=", properties.core_count,
                        ", total_memory=", properties.total_memory >> 20, "MB, simd='",
                        to_string(properties.simd), "')");
}

void bind_properties(py::module_& module) {
  using P = DeviceProperties;
  py::class_<P>(module, "_LoomDeviceProperties")
      .def_readonly("name", &P::name)
      .def_readonly("core_count", &P::core_count)
      .def_readonly("multi_processor_count", &P::core_count)
      .def_readonly("cpus", &P::cpus)
      .def_readonly("numa_node", &P::numa_node)
      .def_readonly("total_memory", &P::total_memory)
      .def_readonly("l1_cache", &P::l1_cache)
      .def_readonly("l2_cache", &P::l2_cache)
      .def_readonly("l3_cache", &P::l3_cache)
      .def_property_readonly("simd", [](const P& self) { return to_string(self.simd); })
      .def("__repr__", &describe);
}

}  // namespace

void bind_device(py::module_& module) {
  bind_properties(module);
  module.def("_init", &initialize);
  module.def("_is_in_bad_fork", &is_in_bad_fork);
  module.def("_device_count", [] { return device_count(); });
  module.def("_get_device_properties", &properties_of, py::return_value_policy::reference);
  module.def("_keep_backward_thread", &keep_backward_thread);
  module.def("_drain_devices", &drain_devices, py::call_guard<py::gil_scoped_release>());
  module.def("_get_core_limit", &used_cores);
  module.def("_set_core_limit", &set_core_limit);
  module.def("_option_table", &option_rows);
}

}  // namespace loom::python
