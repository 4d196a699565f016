// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/sync_debug.h"
#include "loom/base/lock_checks.h"
#include "loom/device/queue.h"
#include "loom/device/timeline.h"
#include "loom/ops/fallback/fallback_report.h"

#include "bindings.h"
#include "gil.h"
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace py = pybind11;

namespace loom::python {
namespace {

std::string text_of(PyObject* string) {
  const char* text = PyUnicode_AsUTF8(string);
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? std::string() : std::string(text);
}

/// Where PyTorch's own sources are: "/.../site-packages/torch/". Set once at import.
std::string& torch_folder() {
  static auto* folder = new std::string;  // leaked: operators may run in static destructors
  return *folder;
}

py::object owned(void* object) {
  return py::reinterpret_steal<py::object>(static_cast<PyObject*>(object));
}

/// "file.py:12": the innermost frame of this thread that is not PyTorch's own, else the innermost.
/// Threads without Python frames (autograd's, the workers) give an empty string.
std::string python_place() {
  if (Py_IsInitialized() == 0 || interpreter_is_gone()) return {};
  if (PyGILState_GetThisThreadState() == nullptr) return {};
  const py::gil_scoped_acquire gil;
  py::object frame = owned(PyThreadState_GetFrame(PyThreadState_Get()));
  std::string innermost;
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const py::object code = owned(PyFrame_GetCode(raw));
    const std::string file = text_of(reinterpret_cast<PyCodeObject*>(code.ptr())->co_filename);
    std::string place = file + ":" + std::to_string(PyFrame_GetLineNumber(raw));
    if (!file.starts_with(torch_folder())) return place;
    if (innermost.empty()) innermost = std::move(place);
    frame = owned(PyFrame_GetBack(raw));
  }
  return innermost;
}

/// Python threads run on while one of them waits for the device, whatever the wait came from.
void wait_without_gil(void (*body)(void*), void* context) {
  if (Py_IsInitialized() == 0) {
    body(context);
    return;
  }
  if (!has_gil()) {
    const WaitWithoutGil wait;
    body(context);
    return;
  }
  const GilRelease release;
  body(context);
}

using Row = std::tuple<std::string, std::uint64_t, double, std::map<std::string, std::uint64_t>>;

std::vector<Row> report() {
  std::vector<Row> rows;
  for (const ops::FallbackEntry& entry : ops::fallback_report()) {
    rows.emplace_back(
        entry.name, entry.count, static_cast<double>(entry.total_ns) * 1e-9,
        std::map<std::string, std::uint64_t>(entry.places.begin(), entry.places.end()));
  }
  return rows;
}

}  // namespace

void bind_fallback(py::module_& module) {
  const auto file = py::module_::import("torch").attr("__file__").cast<std::string>();
  torch_folder() = file.substr(0, file.find_last_of('/') + 1);
  ops::set_place_provider(&python_place);
  set_wait_wrapper(&wait_without_gil);
  lock_checks::set_gil_probe(&has_gil);
  module.def("_fallbacks", &report);
  module.def("_reset_fallbacks", &ops::reset_fallback_report);
  module.def("_host_waits", &Queue::host_waits);
  module.def("_sync_debug_mode", [] { return static_cast<int>(sync_debug_mode()); });
  module.def("_set_sync_debug_mode",
             [](int mode) { set_sync_debug_mode(static_cast<SyncDebugMode>(mode)); });
}

}  // namespace loom::python
