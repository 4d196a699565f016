// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/kernel_cache.h"
#include "loom/fusion/recorder.h"

#include "bindings.h"
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace loom::python {
namespace {

using Row = std::tuple<std::vector<std::string>, std::string, bool, std::uint64_t, std::uint64_t,
                       std::uint64_t, std::uint64_t, double>;

std::vector<Row> report() {
  std::vector<Row> rows;
  for (fusion::FusedProgram& program : fusion::KernelCache::instance().report()) {
    rows.emplace_back(std::move(program.operators), std::move(program.instructions),
                      program.compiled, program.runs, program.elements, program.bytes,
                      program.unfused_bytes, static_cast<double>(program.nanoseconds) * 1e-9);
  }
  return rows;
}

}  // namespace

void bind_fusion(py::module_& module) {
  module.def("_fusion_report", &report);
  module.def("_reset_fusion_report", [] { fusion::KernelCache::instance().reset_report(); });
  module.def("_fusion_enabled", &fusion::enabled);
  module.def("_set_fusion_enabled", &fusion::set_enabled);
}

}  // namespace loom::python
