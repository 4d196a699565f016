// SPDX-License-Identifier: BSD-3-Clause
#include "loom/backend/allocator.h"
#include "loom/backend/stream.h"
#include "loom/device/queue.h"
#include "loom/memory/caching_allocator.h"

#include <ATen/accelerator/Graph.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/python_variable.h>

#include "bindings.h"
#include "gil.h"
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace loom::python {
namespace {

bool is_tensor(const py::handle& value) { return THPVariable_Check(value.ptr()); }

const at::Tensor& tensor_of(const py::handle& value) {
  if (!is_tensor(value)) throw py::type_error("expected a tensor");
  return THPVariable_Unpack(value.ptr());
}

std::int64_t byte_offset(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize());
}

/// A tensor of the geometry and dtype of `like`, from byte `offset` of a storage on.
at::Tensor in_memory(const c10::Storage& storage, std::int64_t offset, const at::Tensor& like) {
  const auto itemsize = static_cast<std::int64_t>(like.itemsize());
  at::Tensor made = at::empty({0}, like.options().device(storage.device()));
  return made.set_(storage, offset / itemsize, like.sizes(), like.strides());
}

/// All of a storage, copied.
c10::Storage copy_of(const c10::Storage& storage) {
  const auto options = at::TensorOptions(at::kByte).device(storage.device());
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  at::Tensor whole = at::empty({0}, options).set_(storage, 0, {bytes}, {1});
  return whole.clone().storage();
}

/// A captured graph as a function of its inputs (inductor/replay.py), without Python between them.
/// Thread: one at a time, with the GIL, which is released while something is queued.
class CapturedCall {
 public:
  using Places = std::vector<std::pair<std::size_t, py::object>>;

  /// `own`: the inputs that are copied to a place of the capture's own, and that place.
  /// `fixed`: those that have to be where they were, or, numbers, the same.
  /// `mutated`: those that the graph writes. `results`: what each result is, as
  /// inductor/replay_results.py says it. Requires: nobody else has a result of the capture.
  CapturedCall(py::object graph, c10::DeviceIndex device, const Places& own, Places fixed,
               std::vector<std::size_t> mutated, const std::vector<py::tuple>& results)
      : graph_(std::move(graph)), device_(at::kPrivateUse1, device), mutated_(std::move(mutated)) {
    for (const auto& [input, place] : own) own_.emplace_back(input, tensor_of(place));
    for (auto& [input, value] : fixed) {
      const bool tensor = is_tensor(value);
      const void* address = tensor ? tensor_of(value).const_data_ptr() : nullptr;
      fixed_.push_back({input, address, tensor ? py::object() : std::move(value)});
    }
    for (const py::tuple& row : results) results_.push_back(result_of(row));
    for (const Result& result : results_) {
      if (result.kind == Kind::kLend) note_lent(result.tensor.storage());
    }
  }

  /// The inputs that are not where they were.
  [[nodiscard]] std::vector<std::size_t> moved(const py::list& inputs) const {
    std::vector<std::size_t> found;
    for (const Fixed& fixed : fixed_) {
      if (!fixed.is_at(inputs[fixed.input])) found.push_back(fixed.input);
    }
    return found;
  }

  /// Whether somebody still has a result of the last replay, or gave it other memory.
  [[nodiscard]] bool lent() const {
    return std::any_of(lent_.begin(), lent_.end(), [](const Lent& lent) {
      return lent.storage.use_count() > lent.references || lent.storage.data() != lent.data ||
             lent.storage.nbytes() != lent.bytes;
    });
  }

  /// Whether an input that would be copied lies in one that the graph writes.
  [[nodiscard]] bool copies_what_it_writes(const py::list& inputs) const {
    return std::any_of(own_.begin(), own_.end(), [&](const auto& own) {
      const auto& storage = tensor_of(inputs[own.first]).storage();
      return std::any_of(mutated_.begin(), mutated_.end(), [&](std::size_t input) {
        return tensor_of(inputs[input]).storage().is_alias_of(storage);
      });
    });
  }

  /// The results of a replay on the current stream; None if that is not the stream of the last one,
  /// or captured, or if the inputs or results do not allow one.
  py::object again(const py::list& inputs) {
    const Queue& queue = current_queue(device_.index());
    if (&queue != last_queue_ || queue.captured() || lent()) return py::none();
    const bool all_there = std::all_of(fixed_.begin(), fixed_.end(), [&](const Fixed& fixed) {
      return fixed.is_at(inputs[fixed.input]);
    });
    if (!all_there || copies_what_it_writes(inputs)) return py::none();
    return run(inputs);
  }

  /// The results of a replay on the current stream. Empties the list.
  py::list run(const py::list& inputs) {
    std::vector<at::Tensor> given(inputs.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (is_tensor(inputs[i])) given[i] = tensor_of(inputs[i]);
    }
    std::vector<at::Tensor> made(results_.size());
    auto& graph = graph_.cast<at::accelerator::Graph&>();
    {
      const GilRelease released;
      const c10::DeviceGuard guard(device_);
      last_queue_ = &current_queue(device_.index());
      for (const auto& [input, place] : own_) place.copy_(given[input]);
      graph.replay();
      hand_out(given, made);
    }
    py::list results(results_.size());
    for (std::size_t j = 0; j < made.size(); ++j) {
      const Result& result = results_[j];
      results[j] = result.kind == Kind::kInput ? py::object(inputs[result.input])
                   : result.kind == Kind::kValue
                       ? result.value
                       : py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(made[j])));
    }
    if (PyList_SetSlice(inputs.ptr(), 0, PyList_GET_SIZE(inputs.ptr()), nullptr) != 0) {
      throw py::error_already_set();
    }
    return results;
  }

 private:
  struct Fixed {
    std::size_t input;
    const void* address;
    py::object value;  ///< null for tensors

    [[nodiscard]] bool is_at(const py::handle& given) const {
      if (value) return value.equal(given);
      return is_tensor(given) && tensor_of(given).const_data_ptr() == address;
    }
  };

  enum class Kind {
    kInput,     ///< an input
    kValue,     ///< no tensor
    kCopy,      ///< copied, elements alone
    kLend,      ///< what the graph writes
    kView,      ///< in memory of an input, so many bytes after its first element
    kTogether,  ///< in a copy of its storage, of which the first result of it is `input`
  };
  struct Result {
    Kind kind;
    std::size_t input = 0;
    std::int64_t offset = 0;
    at::Tensor tensor{};
    py::object value{};
  };

  struct Lent {
    c10::Storage storage;
    const void* data;
    std::size_t bytes, references;  ///< references: while nobody else has any
  };

  void note_lent(const c10::Storage& storage) {
    const bool noted = std::any_of(lent_.begin(), lent_.end(), [&](const Lent& lent) {
      return lent.storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
    });
    if (noted) return;
    const std::size_t references = storage.use_count() + 1;  // and that of the row
    lent_.push_back({storage, storage.data(), storage.nbytes(), references});
  }

  static Result result_of(const py::tuple& row) {
    const auto kind = row[0].cast<std::string>();
    if (kind == "input") return {.kind = Kind::kInput, .input = row[1].cast<std::size_t>()};
    if (kind == "value") return {.kind = Kind::kValue, .value = row[1]};
    if (kind == "copy") return {.kind = Kind::kCopy, .tensor = tensor_of(row[1])};
    if (kind == "lend") return {.kind = Kind::kLend, .tensor = tensor_of(row[1])};
    if (kind == "view") {
      return {.kind = Kind::kView,
              .input = row[2].cast<std::size_t>(),
              .offset = row[3].cast<std::int64_t>(),
              .tensor = tensor_of(row[1])};
    }
    if (kind != "together") throw py::value_error("unknown kind of result: " + kind);
    return {
        .kind = Kind::kTogether, .input = row[2].cast<std::size_t>(), .tensor = tensor_of(row[1])};
  }

  void hand_out(const std::vector<at::Tensor>& given, std::vector<at::Tensor>& made) const {
    for (std::size_t j = 0; j < made.size(); ++j) {
      const Result& result = results_[j];
      switch (result.kind) {
        case Kind::kInput:
        case Kind::kValue:
          break;
        case Kind::kCopy:
          made[j] = result.tensor.clone();
          break;
        case Kind::kLend:
          made[j] = result.tensor.detach();
          break;
        case Kind::kView: {
          const at::Tensor& input = given[result.input];
          made[j] = in_memory(input.storage(), byte_offset(input) + result.offset, result.tensor);
          break;
        }
        case Kind::kTogether: {
          const auto storage =
              result.input == j ? copy_of(result.tensor.storage()) : made[result.input].storage();
          made[j] = in_memory(storage, byte_offset(result.tensor), result.tensor);
          break;
        }
      }
    }
  }

  py::object graph_;
  c10::Device device_;
  std::vector<std::pair<std::size_t, at::Tensor>> own_;
  std::vector<Fixed> fixed_;
  std::vector<std::size_t> mutated_;
  std::vector<Result> results_;
  std::vector<Lent> lent_;
  const Queue* last_queue_ = nullptr;
};

}  // namespace

void bind_replay(py::module_& module) {
  // A storage's Python object would be kept with it, and hide who else has one.
  module.def("_storage_of", [](const at::Tensor& tensor) {
    const auto& storage = tensor.storage();
    return std::pair(reinterpret_cast<std::uintptr_t>(storage.unsafeGetStorageImpl()),
                     storage.nbytes());
  });
  module.def("_bytes_of_private_pools", [](c10::DeviceIndex device) {
    std::map<PoolId, std::int64_t> bytes;
    for (const auto& [pool, stats] :
         caching_allocator(device).stats().reserved_bytes_by_private_pools) {
      bytes[pool] = stats.front().current;
    }
    return bytes;
  });
  py::class_<CapturedCall>(module, "_CapturedCall")
      .def(py::init<py::object, c10::DeviceIndex, const CapturedCall::Places&, CapturedCall::Places,
                    std::vector<std::size_t>, const std::vector<py::tuple>&>())
      .def("moved", &CapturedCall::moved)
      .def("lent", &CapturedCall::lent)
      .def("copies_what_it_writes", &CapturedCall::copies_what_it_writes)
      .def("again", &CapturedCall::again)
      .def("run", &CapturedCall::run);
}

}  // namespace loom::python
