// SPDX-License-Identifier: BSD-3-Clause
#include "loom/ops/compiled_program.h"

#include "loom/backend/allocator.h"
#include "loom/backend/stream.h"
#include "loom/base/mutex.h"
#include "loom/device/address.h"
#include "loom/fusion/foresight.h"
#include "loom/fusion/recorder.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/fused.h"
#include "loom/ops/launch/tensor_ref.h"

#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/clone.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>
#include <utility>

namespace loom::ops {
namespace {

using fusion::Expression;
using fusion::Node;

template <class... Case>
struct Cases : Case... {
  using Case::operator()...;
};

// Profiles and reports refer to names.
const char* kept_for_ever(std::string_view name) {
  static Mutex mutex;
  static auto* const names = new std::set<std::string, std::less<>>;
  MutexLock lock(mutex);
  return names->emplace(name).first->c_str();
}

fusion::TensorAccess access_of(const CompiledProgram::Operand& operand, void* tensor) {
  fusion::TensorAccess access;
  access.dtype = *fusion_dtype(operand.dtype);
  access.data = static_cast<std::byte*>(host_address(tensor)) +
                operand.offset * static_cast<std::int64_t>(fusion::size_of(access.dtype));
  access.sizes = operand.sizes;
  access.strides = operand.strides;
  access.numel = 1;
  access.contiguous = true;
  for (std::size_t d = operand.sizes.size(); d-- > 0;) {
    if (operand.sizes[d] != 1 && operand.strides[d] != access.numel) access.contiguous = false;
    access.numel *= operand.sizes[d];
  }
  return access;
}

}  // namespace

fusion::DType program_dtype(c10::ScalarType dtype) {
  const auto found = fusion_dtype(dtype);
  TORCH_CHECK_VALUE(found, "CompiledProgram: expected a dtype of fused programs, got ", dtype);
  return *found;
}

fusion::Op program_op(std::string_view name) {
  for (int op = 0; op <= static_cast<int>(fusion::Op::kMin); ++op) {
    if (fusion::name_of(static_cast<fusion::Op>(op)) == name) return static_cast<fusion::Op>(op);
  }
  TORCH_CHECK_VALUE(false, "CompiledProgram: expected an operation of programs, got ", name);
}

at::Tensor empty_result(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                        c10::DeviceIndex device) {
  return empty_strided(sizes, strides, dtype, c10::Device(c10::kPrivateUse1, device));
}

/// The steps, written as an expression.
class CompiledProgram::Draft {
 public:
  explicit Draft(const CompiledProgram& program) : program_(program), expression_(program.name_) {
    // What has no memory in common with the nest before it runs beside it.
    expression_.set_independent(true);
    if (program.reduced_dims_ > 0) expression_.reduce_over_last(program.reduced_dims_);
  }

  /// load(operand) makes a node, place(operand) says where a result goes.
  template <class LoadOperand, class Place>
  const Expression& write(const LoadOperand& load, const Place& place) {
    for (const Step& step : program_.steps_) {
      nodes_.push_back(std::visit(
          Cases{[&](const Load& s) { return load(expression_, program_.operands_[s.operand]); },
                [&](const Number& s) { return number(s); },
                [&](const Apply& s) {
                  return expression_.apply(s.op, nodes_[s.a], nodes_[s.b], nodes_[s.c]);
                },
                [&](const Convert& s) {
                  return std::visit([&](auto to) { return expression_.to(to, nodes_[s.a]); }, s.to);
                },
                [&](const Store& s) {
                  expression_.store(nodes_[s.a], place(program_.operands_[s.operand]));
                  return nodes_[s.a];
                }},
          step));
    }
    return expression_;
  }

 private:
  Node number(const Number& number) {
    if (number.type == fusion::Type::kInt64) {
      return expression_.number(std::get<std::int64_t>(number.value));
    }
    return std::visit(
        [&](auto value) { return expression_.number(number.type, static_cast<double>(value)); },
        number.value);
  }

  const CompiledProgram& program_;
  Expression expression_;
  c10::SmallVector<Node, Expression::kMaxNodes> nodes_;
};

CompiledProgram::CompiledProgram(std::string_view name, int reduced_dims,
                                 std::vector<Operand> operands, std::vector<Step> steps)
    : name_(kept_for_ever(name)),
      reduced_dims_(reduced_dims),
      operands_(std::move(operands)),
      steps_(std::move(steps)) {
  check();
}

void CompiledProgram::check() const {
  const auto known = [](std::size_t what, std::size_t of, const char* name) {
    TORCH_CHECK_VALUE(what < of, "CompiledProgram: expected one of ", of, " ", name, ", got ",
                      what);
  };
  for (const Operand& operand : operands_) {
    (void)program_dtype(operand.dtype);
    TORCH_CHECK_VALUE(operand.sizes.size() == operand.strides.size(),
                      "CompiledProgram: expected a stride for each size, got ",
                      operand.strides.size(), " for ", operand.sizes.size());
  }
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    std::visit(Cases{[&](const Load& s) { known(s.operand, operands_.size(), "operands"); },
                     [](const Number&) {},
                     [&](const Apply& s) {
                       for (const std::size_t step : {s.a, s.b, s.c}) {
                         known(step, i, "steps before");
                       }
                     },
                     [&](const Convert& s) { known(s.a, i, "steps before"); },
                     [&](const Store& s) {
                       known(s.operand, operands_.size(), "operands");
                       known(s.a, i, "steps before");
                     }},
               steps_[i]);
  }
}

bool CompiledProgram::runs_as_machine_code() const {
  // Each tensor in memory of its own, as far from the next one as no tensor reaches.
  const auto somewhere = [](const Operand& operand) {
    return access_of(operand, reinterpret_cast<void*>((operand.tensor + 1) << 40));
  };
  Draft draft(*this);
  const Expression& expression = draft.write(
      [&](Expression& e, const Operand& operand) { return e.load(somewhere(operand)); }, somewhere);
  return expression.fits() && fusion::runs_as_machine_code(expression);
}

bool CompiledProgram::record(std::span<const at::Tensor> from,
                             std::span<const at::Tensor> to) const {
  c10::DeviceIndex device = -1;
  const auto load = [&](Expression& expression, const Operand& operand) {
    const at::Tensor& tensor = from[operand.tensor];
    if (tensor.is_cpu()) {
      const c10::Scalar value = at::native::_local_scalar_dense_cpu(tensor);
      const fusion::Type type = fusion::register_type(*fusion_dtype(operand.dtype));
      return type == fusion::Type::kInt64 ? expression.number(value.to<std::int64_t>())
                                          : expression.number(type, value.to<double>());
    }
    return expression.load(access_of(operand, const_cast<void*>(tensor.const_data_ptr())));
  };
  const auto place = [&](const Operand& operand) {
    const at::Tensor& tensor = to[operand.tensor];
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    materialize(storage);
    fusion::TensorAccess access = access_of(operand, tensor.mutable_data_ptr());
    access.allocation = allocation_of(storage.data_ptr());
    device = tensor.device().index();
    return access;
  };
  Draft draft(*this);
  const Expression& expression = draft.write(load, place);
  return fusion::record(current_queue(device), expression);
}

void CompiledProgram::launch(std::span<const at::Tensor> tensors) const {
  if (record(tensors, tensors)) return;
  // Results lie partly where operands do: an input that a graph writes overlaps with another one.
  std::vector<at::Tensor> copies(tensors.begin(), tensors.end());
  for (const Step& step : steps_) {
    const auto* const read = std::get_if<Load>(&step);
    if (read == nullptr) continue;
    const std::size_t place = operands_[read->operand].tensor;
    if (!copies[place].is_cpu() && copies[place].is_same(tensors[place])) {
      copies[place] = copy_of(tensors[place], place);
    }
  }
  TORCH_INTERNAL_ASSERT(record(copies, tensors), name_, ": a nest that cannot be recorded");
}

at::Tensor CompiledProgram::copy_of(const at::Tensor& tensor, std::size_t place) const {
  std::int64_t reach = 1;
  for (const Operand& operand : operands_) {
    if (operand.tensor != place) continue;
    std::int64_t last = operand.offset;
    for (std::size_t d = 0; d < operand.sizes.size(); ++d) {
      last += (operand.sizes[d] - 1) * operand.strides[d];
    }
    reach = std::max(reach, last + 1);
  }
  return at::clone(at::as_strided(tensor, {reach}, {1}, tensor.storage_offset()));
}

}  // namespace loom::ops
