// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A program is a run of pointwise operators and row reductions of one queue, recorded on the
// caller's thread and run as one command. While it is open it can be appended to; when it is
// closed, results whose memory has been freed meanwhile are known to be temporaries and are never
// written.
//
// All operators of a program share its *space*: the sizes that they iterate over and the strides
// that most operands have there. A later operator's operand is either the very place where an
// earlier one's result is stored, and then it is that value, or it does not overlap with any stored
// result; a result is stored to a place that is exactly an operand's or an earlier result's, or
// overlaps with none. What does not obey starts another program, so that within one program the
// order of elements does not matter.
//
// Thread: append() and close() under the lock of the queue's submissions; everything else on the
// worker, after that.

#include "loom/base/export.h"
#include "loom/fusion/body.h"
#include "loom/fusion/expression.h"
#include "loom/fusion/location.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace loom::fusion {

struct RecordedLoad {
  Location from;
  ValueId value;
};

struct RecordedStore {
  Location to;
  ValueId value;
  bool dead;  ///< overwritten, or freed: nobody will see it
  const void* allocation;
  std::uint64_t freed_state;
};

class LOOM_API Program {
 public:
  static constexpr std::size_t kMaxValues =
      Body::kMaxInputs + Body::kMaxParams + Body::kMaxInstructions;
  static constexpr std::size_t kMaxOperators = 48;

  /// What a value is: the number of a load, a parameter, or an instruction.
  enum class ValueKind : std::uint8_t { kLoad, kParam, kResult };
  struct Value {
    ValueKind kind;
    std::uint8_t index;
    Type type;
    bool uniform;  ///< the same for all columns of a row
  };

  Program() = default;

  /// Makes it empty and open.
  void reset() noexcept;

  /// Adds the operator, or returns false and changes nothing if it does not fit in: another space,
  /// operands that overlap otherwise than stated above, no room. An empty program takes whatever
  /// any program can take.
  [[nodiscard]] bool append(const Expression& expression) noexcept;

  /// Finds out which results nobody will see. Nothing may be appended afterwards.
  void close() noexcept;

  [[nodiscard]] const Space& space() const noexcept { return space_; }
  [[nodiscard]] std::span<const RecordedLoad> loads() const noexcept {
    return {loads_.data(), load_count_};
  }
  [[nodiscard]] std::span<const RecordedStore> stores() const noexcept {
    return {stores_.data(), store_count_};
  }
  [[nodiscard]] std::span<const Instruction> instructions() const noexcept {
    return {instructions_.data(), instruction_count_};
  }
  [[nodiscard]] std::span<const Param> params() const noexcept {
    return {params_.data(), param_count_};
  }
  [[nodiscard]] std::span<const Value> values() const noexcept {
    return {values_.data(), value_count_};
  }
  /// Has a run of the closed program write this result or not.
  void set_store_dead(std::size_t store, bool dead) noexcept { stores_[store].dead = dead; }
  /// Bytes that the operators would move if each ran by itself.
  [[nodiscard]] std::uint64_t unfused_bytes() const noexcept { return unfused_bytes_; }
  /// The names of the operators, in order.
  [[nodiscard]] std::span<const char* const> operators() const noexcept {
    return {operators_.data(), operator_count_};
  }

 private:
  struct Draft;

  [[nodiscard]] bool fit_space(const Expression& expression, Draft& draft) const noexcept;
  [[nodiscard]] bool place(const TensorAccess& access, const Draft& draft, Location& location,
                           bool rows_only = false) const noexcept;
  [[nodiscard]] bool resolve_loads(const Expression& expression, Draft& draft) noexcept;
  [[nodiscard]] bool resolve_stores(const Expression& expression, Draft& draft) noexcept;
  void drop_dead_stores() noexcept;
  [[nodiscard]] bool has_room(const Expression& expression, const Draft& draft) const noexcept;
  void commit(const Expression& expression, const Draft& draft) noexcept;
  void prefetch_places() const noexcept;
  void find_uniform(const Space& space, std::span<bool> uniform) const noexcept;
  [[nodiscard]] bool reduces_elements(const Draft& draft) const noexcept;
  [[nodiscard]] ValueId add_value(ValueKind kind, std::size_t index, Type type,
                                  bool uniform) noexcept;
  [[nodiscard]] ValueId add_param(Type type, Param number) noexcept;
  [[nodiscard]] bool known_dead(RecordedStore& store) noexcept;

  Space space_;
  std::uint8_t load_count_ = 0, store_count_ = 0, param_count_ = 0, instruction_count_ = 0;
  std::uint8_t value_count_ = 0, operator_count_ = 0;
  std::uint64_t unfused_bytes_ = 0;
  detail::Slots<RecordedLoad, Body::kMaxInputs> loads_;
  detail::Slots<RecordedStore, Body::kMaxOutputs> stores_;
  detail::Slots<Param, Body::kMaxParams> params_;
  detail::Slots<Value, kMaxValues> values_;
  detail::Slots<Instruction, Body::kMaxInstructions> instructions_;
  detail::Slots<const char*, kMaxOperators> operators_;
};

}  // namespace loom::fusion
