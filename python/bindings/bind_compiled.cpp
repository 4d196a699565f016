// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/compiled_program.h"
#include "loom/ops/numbered_devices.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace loom::python {
namespace {

using ops::CompiledProgram;
using OperandRow = std::tuple<std::size_t, py::object, std::int64_t, std::vector<std::int64_t>,
                              std::vector<std::int64_t>>;

c10::ScalarType scalar_type(const py::handle& dtype) {
  if (!THPDtype_Check(dtype.ptr())) throw py::type_error("expected a torch.dtype");
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

fusion::Type type_of(const py::handle& dtype) {
  return fusion::register_type(ops::program_dtype(scalar_type(dtype)));
}

// ("load", operand), ("number", dtype, value), ("as", dtype, a): the value in the register of a
// dtype, ("narrow", dtype, a): the nearest that the dtype holds, ("store", operand, a), or the name
// of an operation and one to three operands.
CompiledProgram::Step step_of(const py::tuple& row) {
  const auto name = row[0].cast<std::string>();
  const auto at = [&](std::size_t i) { return row[i].cast<std::size_t>(); };
  if (name == "load") return CompiledProgram::Load{at(1)};
  if (name == "store") return CompiledProgram::Store{at(1), at(2)};
  if (name == "as") return CompiledProgram::Convert{type_of(row[1]), at(2)};
  if (name == "narrow") {
    return CompiledProgram::Convert{ops::program_dtype(scalar_type(row[1])), at(2)};
  }
  if (name == "number") {
    CompiledProgram::Number number{type_of(row[1]), {}};
    if (number.type == fusion::Type::kInt64) {
      number.value = row[2].cast<std::int64_t>();
    } else {
      number.value = row[2].cast<double>();
    }
    return number;
  }
  const std::size_t last = row.size() - 1;
  return CompiledProgram::Apply{ops::program_op(name), at(1), at(std::min<std::size_t>(2, last)),
                                at(std::min<std::size_t>(3, last))};
}

CompiledProgram make(const std::string& name, int reduced_dims, std::vector<OperandRow> operands,
                     const std::vector<py::tuple>& steps) {
  std::vector<CompiledProgram::Operand> all;
  all.reserve(operands.size());
  for (auto& [tensor, dtype, offset, sizes, strides] : operands) {
    all.push_back({tensor, scalar_type(dtype), offset, std::move(sizes), std::move(strides)});
  }
  std::vector<CompiledProgram::Step> made;
  made.reserve(steps.size());
  for (const py::tuple& row : steps) made.push_back(step_of(row));
  return {name, reduced_dims, std::move(all), std::move(made)};
}

std::vector<std::int64_t> numbers(const py::tuple& from) {
  std::vector<std::int64_t> made(from.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(from.ptr(), static_cast<py::ssize_t>(i)));
  }
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return made;
}

// torch.empty_strided() for generated code, which has nothing else to say.
at::Tensor empty_strided(const py::tuple& sizes, const py::tuple& strides, const py::handle& dtype,
                         c10::DeviceIndex device) {
  return ops::empty_result(numbers(sizes), numbers(strides), scalar_type(dtype), device);
}

void launch(const CompiledProgram& program, const py::args& arguments) {
  c10::SmallVector<at::Tensor, 12> tensors;
  for (const py::handle& argument : arguments) {
    if (!THPVariable_Check(argument.ptr())) throw py::type_error("expected tensors");
    tensors.push_back(THPVariable_Unpack(argument.ptr()));
  }
  program.launch({tensors.data(), tensors.size()});
}

/// What torch._C._dynamo.guards.assert_size_stride() checks, for all inputs of a graph at once.
class Layouts {
 public:
  using Row = std::tuple<py::tuple, py::tuple>;  ///< sizes, strides

  explicit Layouts(const std::vector<Row>& rows) {
    for (const auto& [sizes, strides] : rows)
      layouts_.push_back({numbers(sizes), numbers(strides)});
  }

  void check(const py::args& inputs) const {
    if (inputs.size() != layouts_.size()) throw py::type_error("expected other inputs");
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      const py::handle input = inputs[i];
      if (THPVariable_Check(input.ptr()) && layouts_[i].is_of(THPVariable_Unpack(input.ptr()))) {
        continue;
      }
      py::module_::import("torch._C._dynamo.guards")
          .attr("assert_size_stride")(input, py::tuple(py::cast(layouts_[i].sizes)),
                                      py::tuple(py::cast(layouts_[i].strides)), "input");
    }
  }

 private:
  struct Layout {
    std::vector<std::int64_t> sizes, strides;

    [[nodiscard]] bool is_of(const at::Tensor& tensor) const {
      return tensor.sizes() == c10::IntArrayRef(sizes) &&
             tensor.strides() == c10::IntArrayRef(strides);
    }
  };

  std::vector<Layout> layouts_;
};

}  // namespace

void bind_compiled(py::module_& module) {
  py::class_<CompiledProgram>(module, "_CompiledProgram")
      .def(py::init(&make))
      .def("runs_as_machine_code", &CompiledProgram::runs_as_machine_code)
      .def("__call__", &launch);
  py::class_<Layouts>(module, "_Layouts")
      .def(py::init<const std::vector<Layouts::Row>&>())
      .def("__call__", &Layouts::check);
  module.def("_empty_strided", &empty_strided);
  module.def("_define_with_numbered_devices", &define_with_numbered_devices);
}

}  // namespace loom::python
