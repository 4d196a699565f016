// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Structured operators (ATen's word for those whose shape inference is a class of its own) cost a
// line each here: structured<Meta, Policy, Out, kCpu, Others...>(m) registers the out= form and
// the other forms (functional, in place). On the caller the operator's own meta() checks the
// arguments and infers the outputs, which are made on the device; on the worker the CPU kernel
// runs on aliases of them, in the blocks that the policy says.
// A policy has one static member: split(outputs, arguments...), which returns one of split.h's
// policies, or launch<kCpu>(name, outputs, arguments...), which queues the kernel itself. It has a
// member kProbesDtypes if one-element operands are valid whatever the other arguments are, and
// kMayCoincide if the kernel is right when the given output is the very place of an input, and
// is_in_place(out, inputs...) where that is so for the first one, in calls that it knows.
// Thread: registration at load time; the registered functions from any.

#include "loom/ops/aten/structured_schema.h"
#include "loom/ops/fallback/fallback.h"
#include "loom/ops/fallback/trial.h"
#include "loom/ops/fallback/widening.h"
#include "loom/ops/launch/alike.h"
#include "loom/ops/launch/empty.h"
#include "loom/ops/launch/launch.h"
#include "loom/ops/launch/overlap.h"
#include "loom/ops/meta/dtype_probe.h"
#include "loom/ops/meta/structured_meta.h"

#include <torch/library.h>

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace loom::ops {
namespace detail {

/// Calls a CPU kernel, whose outputs are its last arguments, with outputs first. The kernel is a
/// pointer that is known at run time only: operators of one signature share their commands' code.
template <std::size_t kOutputs, class Kernel>
struct OutputsFirst {
  Kernel kernel;

  template <class... Argument>
  void operator()(Argument&&... arguments) const {
    constexpr std::size_t kInputs = sizeof...(Argument) - kOutputs;
    auto all = std::forward_as_tuple(arguments...);
    [&]<std::size_t... kOut, std::size_t... kIn>(std::index_sequence<kOut...>,
                                                 std::index_sequence<kIn...>) {
      const KeptForm forms[] = {KeptForm(std::get<kOut>(all))...};
      kernel(std::get<kOutputs + kIn>(all)..., std::get<kOut>(all)...);
      for (const KeptForm& kept : forms) kept.restore();
    }(std::make_index_sequence<kOutputs>{}, std::make_index_sequence<kInputs>{});
  }
};

template <std::size_t kOutputs, class Kernel>
OutputsFirst<kOutputs, Kernel> outputs_first(Kernel kernel) {
  return {kernel};
}

}  // namespace detail

/// Queues a CPU kernel (one of at::cpu::*_outf) with the given split.
template <auto kCpu, class Split, std::size_t kOutputs, class... Argument>
void launch_cpu(const char* name, Split split, const std::array<at::Tensor, kOutputs>& outputs,
                const Argument&... arguments) {
  std::apply(
      [&](const auto&... output) {
        launch_on(outputs[0].device(), name, std::move(split),
                  detail::outputs_first<kOutputs>(kCpu), out(output)..., arguments...);
      },
      outputs);
}

namespace detail {

/// "add" of "aten::add".
template <class Op>
constexpr const char* short_name() {
  return Op::name + std::char_traits<char>::length("aten::");
}

/// One form of one operator; `Op` is its class in at::_ops.
template <class Op, class Meta, class Policy, auto kCpu, class OpSchema = Schema<Op>>
struct StructuredForm;

template <class Op, class Meta, class Policy, auto kCpu, class Result, class... Argument>
struct StructuredForm<Op, Meta, Policy, kCpu, Result(Argument...)> {
  static constexpr std::size_t kOutputs = ResultTraits<Result>::kCount;
  static constexpr bool kInPlace =
      std::is_same_v<std::tuple_element_t<0, std::tuple<Argument...>>, at::Tensor&>;
  static constexpr std::size_t kInputs = sizeof...(Argument) - kOutputs;
  using Outputs = std::array<at::Tensor, kOutputs>;
  /// Whether there may be overlaps that meta() does not look at: TensorIterator does.
  static constexpr bool kMayOverlap =
      !ResultTraits<Result>::kNew && !std::is_base_of_v<at::TensorIteratorBase, Meta>;
  static constexpr bool kMayCoincide = requires { Policy::kMayCoincide; };

  static Result call(Argument... arguments) {
    if constexpr (kOutputs == 1 && !kInPlace && !ResultTraits<Result>::kNew) {
      if (call_in_place(std::tie(arguments...), std::make_index_sequence<kInputs>{})) {
        return std::get<kInputs>(std::tie(arguments...));
      }
    }
    if constexpr (constexpr auto widening = widening_of(short_name<Op>()); widening.has_value()) {
      if (is_widened(*widening, arguments...)) [[unlikely]] {
        return call_fallback<Result, Argument...>(Op::name, Op::overload_name,
                                                  std::forward<Argument>(arguments)...);
      }
    }
    if constexpr (kMayOverlap) {
      if (operands_overlap(std::array{as_tensor(arguments)...}, {kInPlace ? 0 : kInputs, kOutputs},
                           kMayCoincide)) [[unlikely]] {
        return call_fallback<Result, Argument...>(Op::name, Op::overload_name,
                                                  std::forward<Argument>(arguments)...);
      }
    }
    if constexpr (!requires { Policy::kProbesDtypes; }) {
      static TriedDtypes tried;
      if (tried.refuses(Op::name, Op::overload_name, arguments...)) [[unlikely]] {
        return decide_on_host(tried, arguments...);
      }
    }
    if constexpr (ResultTraits<Result>::kNew) {
      Outputs outputs = run<OutputKind::kNew>({}, arguments...);
      return std::apply([](auto&... output) { return Result(std::move(output)...); }, outputs);
    } else if constexpr (kInPlace) {
      at::Tensor& self = std::get<0>(std::tie(arguments...));
      run<OutputKind::kInPlace>({self}, arguments...);
      return self;
    } else {
      return call_out(std::tie(arguments...), std::make_index_sequence<kInputs>{},
                      std::make_index_sequence<kOutputs>{});
    }
  }

 private:
  static Result decide_on_host(TriedDtypes& tried, Argument... arguments) {
    Result result = call_fallback<Result, Argument...>(Op::name, Op::overload_name, arguments...);
    tried.accept(arguments...);
    return result;
  }

  template <class All, std::size_t... kIn, std::size_t... kOut>
  static Result call_out(All all, std::index_sequence<kIn...>, std::index_sequence<kOut...>) {
    run<OutputKind::kGiven>({std::get<kInputs + kOut>(all)...}, std::get<kIn>(all)...);
    return Result(std::get<kInputs + kOut>(all)...);
  }

  /// True if the given output is the first input, and the call was that of the form in place.
  template <class All, std::size_t kFirst, std::size_t... kIn>
  static bool call_in_place(const All& all, std::index_sequence<kFirst, kIn...>) {
    const auto& out = std::get<kInputs>(all);
    if constexpr (requires { Policy::is_in_place(out, out, std::get<kIn>(all)...); }) {
      if (!Policy::is_in_place(out, std::get<0>(all), std::get<kIn>(all)...) ||
          operands_overlap(std::array{as_tensor(std::get<kIn>(all))..., as_tensor(out)},
                           {sizeof...(kIn), 1}, false)) {
        return false;
      }
      run<OutputKind::kInPlace>({out}, out, std::get<kIn>(all)...);
      return true;
    } else {
      return false;
    }
  }

  /// True if the operator has become part of a fused program.
  template <class Inferred, class... Input>
  static bool fuse(const Inferred& meta, const Outputs& outputs, const Input&... inputs) {
    if constexpr (requires { Policy::kFuses; }) {
      c10::ScalarType common = outputs[0].scalar_type();
      if constexpr (!Policy::kCommonIsOutput) common = meta.common_dtype();
      return Policy::fuse(short_name<Op>(), common, outputs, inputs...);
    } else {
      return false;
    }
  }

  template <OutputKind kKind, class... Input>
  static Outputs run(Outputs given, const Input&... inputs) {
    if constexpr (kKind == OutputKind::kNew && requires { Policy::kResultIsAlike; }) {
      if (const at::Tensor* like = find_alike(inputs...)) [[likely]] {
        Outputs outputs{empty(like->sizes(), like->scalar_type(), like->device())};
        if constexpr (requires { Policy::kFuses; }) {
          if (Policy::fuse(short_name<Op>(), like->scalar_type(), outputs, inputs...)) {
            return outputs;
          }
        }
        probe_dtypes<kCpu>(outputs, inputs...);
        launch_cpu<kCpu>(short_name<Op>(), Policy::split(outputs, inputs...), outputs, inputs...);
        return outputs;
      }
    }
    if constexpr (kKind == OutputKind::kInPlace && requires {
                    Policy::kResultIsAlike;
                    Policy::kFuses;
                  }) {
      if (is_alike_in_place(given[0], inputs...)) [[likely]] {
        // Before the operands' addresses are taken.
        materialize(*given[0].storage().unsafeGetStorageImpl());
        if (Policy::fuse(short_name<Op>(), given[0].scalar_type(), given, inputs...)) return given;
      }
    }
    // TensorIterator compares devices itself, and takes CPU scalars.
    if constexpr (!std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      check_same_device<Op>(inputs...);
    }
    StructuredMeta<Meta, kKind, kOutputs> meta(std::move(given));
    meta.meta(for_meta(inputs)...);
    const Outputs& outputs = meta.outputs();
    if constexpr (kKind == OutputKind::kNew && requires { Policy::kFormatOf; }) {
      const at::Tensor& images = std::get<Policy::kFormatOf>(std::tie(inputs...));
      const c10::MemoryFormat format = images.suggest_memory_format();
      if (format != c10::MemoryFormat::Contiguous) {
        outputs[0].unsafeGetTensorImpl()->empty_tensor_restride(format);
      }
    }
    if (fuse(meta, outputs, inputs...)) return meta.take_outputs();
    if constexpr (requires { Policy::kProbesDtypes; }) probe_dtypes<kCpu>(outputs, inputs...);
    if constexpr (requires { Policy::split(outputs, inputs...); }) {
      launch_cpu<kCpu>(short_name<Op>(), Policy::split(outputs, inputs...), outputs, inputs...);
    } else {
      Policy::template launch<kCpu>(short_name<Op>(), outputs, inputs...);
    }
    return meta.take_outputs();
  }
};

template <class Op>
std::string registered_name() {
  const std::string overload = Op::overload_name;
  return overload.empty() ? Op::name : Op::name + ("." + overload);
}

}  // namespace detail

/// Registers the forms of a structured operator: `Meta` is its class in at::meta, `Out` its out=
/// form in at::_ops, `kCpu` the CPU kernel of that form (at::cpu::*_outf), `Others` other forms.
template <class Meta, class Policy, class Out, detail::Schema<Out>* kCpu, class... Others>
void structured(torch::Library& library) {
  const auto add = [&]<class Op>(std::type_identity<Op>) {
    library.impl(detail::registered_name<Op>().c_str(),
                 TORCH_FN((detail::StructuredForm<Op, Meta, Policy, kCpu>::call)));
  };
  add(std::type_identity<Out>{});
  (add(std::type_identity<Others>{}), ...);
}

/// Policy of operators whose operands broadcast to the output. kCost: see Pointwise.
template <int kCost>
struct Elementwise {
  static constexpr bool kProbesDtypes = true;
  template <class... Anything>
  static Pointwise split(const Anything&...) {
    return {kCost};
  }
};

/// The same, if the result of floating-point operands that are alike (alike.h) is like them.
template <int kCost>
struct Floating : Elementwise<kCost> {
  static constexpr bool kResultIsAlike = true;
};

/// Policy of operators that run as one block.
struct OneBlock {
  template <class... Anything>
  static Whole split(const Anything&...) {
    return {};
  }
};

}  // namespace loom::ops
