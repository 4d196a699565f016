// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/flight_recorder.h"
#include "loom/distributed/network.h"
#include "loom/distributed/process_group.h"

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace loom::python {
namespace {

namespace py = pybind11;
using distributed::Completion;
using distributed::FlightRecorder;
using distributed::ProcessGroupLccl;
using distributed::Recorded;
using Options = ProcessGroupLccl::Options;

const char* name_of(Completion::State state) {
  switch (state) {
    case Completion::kQueued:
      return "queued";
    case Completion::kRunning:
      return "running";
    case Completion::kDone:
      return "done";
    default:
      return "failed";
  }
}

c10::intrusive_ptr<Options> copy_of(const Options& options) {
  return c10::make_intrusive<Options>(options);
}

py::list records_of(const ProcessGroupLccl& group) {
  py::list all;
  for (const Recorded& record : FlightRecorder::instance().operations_of(group)) {
    const Completion::State state = record.completion->state();
    py::dict entry;
    entry["name"] = record.name;
    entry["number"] = record.number;
    entry["bytes"] = record.bytes;
    entry["state"] = name_of(state);
    entry["error"] = state == Completion::kFailed ? record.completion->why() : "";
    all.append(std::move(entry));
  }
  return all;
}

/// Classes that derive from torch's: those are there once torch.distributed is imported.
void bind_process_group(py::module_& module) {
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(module, "_LcclOptions")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout)
      .def("__copy__", &copy_of)
      .def("__deepcopy__",
           [](const Options& options, const py::dict& /*memo*/) { return copy_of(options); });
  py::class_<ProcessGroupLccl, c10d::Backend, c10::intrusive_ptr<ProcessGroupLccl>>(
      module, "_ProcessGroupLccl")
      .def(
          py::init<const c10::intrusive_ptr<c10d::Store>&, int, int, c10::intrusive_ptr<Options>>(),
          py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"),
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &ProcessGroupLccl::getBackendOptions)
      .def("_records", &records_of)
      .def("perform_nocolor_split", [](ProcessGroupLccl&, const py::object& /*device*/) {});
}

/// Has `make` connect ranks on several hosts. It is kept for good, as a group may be made until the
/// process ends.
void set_network_factory(const py::function& make) {
  auto* const kept = new py::function(make);
  distributed::set_network_factory([kept](const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                          int ranks, std::chrono::milliseconds timeout) {
    const py::gil_scoped_acquire held;
    return (*kept)(store, rank, ranks, timeout).cast<c10::intrusive_ptr<c10d::Backend>>();
  });
}

}  // namespace

void bind_distributed(py::module_& module) {
  module.def("_set_network_factory", &set_network_factory);
  module.def("_flight_record", [] { return py::bytes(FlightRecorder::instance().dump()); });
  module.def("_bind_distributed", [module]() mutable {
    if (!py::hasattr(module, "_ProcessGroupLccl")) bind_process_group(module);
  });
}

}  // namespace loom::python
