// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/cuda_name.h"
#include "loom/backend/device_state.h"
#include "loom/graph/graph.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"
#include <cstddef>
#include <optional>

namespace py = pybind11;

namespace loom::python {
namespace {

/// A context manager of Python, for one `with` block in one thread.
class HushContext {
 public:
  void enter() { hush_.emplace(); }
  void exit(const py::args& /*error*/) { hush_.reset(); }

 private:
  std::optional<cuda_name::Hush> hush_;
};

/// Tensor.is_cuda of loom tensors, as fast as torch's own. Subclasses of Tensor and modes may have
/// an answer of their own, which `ask` knows how to get.
PyObject* is_cuda(PyObject* self, void* ask) {
  HANDLE_TH_ERRORS
  if (THPVariable_CheckExact(self) && !at::impl::torch_function_mode_enabled()) {
    const bool is_on_loom = THPVariable_Unpack(self).device().type() == kDeviceType;
    return PyBool_FromLong(static_cast<long>(is_on_loom));
  }
  return PyObject_CallOneArg(static_cast<PyObject*>(ask), self);
  END_HANDLE_TH_ERRORS
}

/// Returns the property `is_cuda` for a class of tensors. A property lives as long as the process.
py::object is_cuda_property(const py::type& cls, py::object ask) {
  auto* definition = new PyGetSetDef{"is_cuda", &is_cuda, nullptr,
                                     "Whether the tensor is on the device, which loom provides.",
                                     ask.release().ptr()};
  auto* type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  auto property = py::reinterpret_steal<py::object>(PyDescr_NewGetSet(type, definition));
  if (!property) throw py::error_already_set();
  return property;
}

std::size_t redirect() {
  graph::register_under_cuda_name();
  return cuda_name::redirect();
}

}  // namespace

void bind_cuda_name(py::module_& module) {
  module.def("_redirect_cuda_name", &redirect);
  module.def("_set_cuda_name", &cuda_name::set_on);
  module.def("_is_cuda_name_on", &cuda_name::is_on);
  module.def("_is_cuda_property", &is_cuda_property);
  py::class_<HushContext>(module, "_HushedName")
      .def(py::init<>())
      .def("__enter__", &HushContext::enter)
      .def("__exit__", &HushContext::exit);
}

}  // namespace loom::python
