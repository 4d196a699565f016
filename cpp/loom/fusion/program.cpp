// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/program.h"

#include "loom/base/prefetch.h"
#include "loom/fusion/freed.h"

#include <algorithm>

namespace loom::fusion {

/// An operator on its way into the program.
struct Program::Draft {
  Space space;
  bool rows = false;  ///< the operator works on one value a row
  bool flat = false;  ///< it takes memory as it lies, whatever the dimensions are
  std::uint8_t new_loads = 0;
  // What each load is: an existing value, or the n-th new one.
  std::array<std::int16_t, Expression::kMaxLoads> existing;
  std::array<std::uint8_t, Expression::kMaxLoads> fresh;
  detail::Slots<Location, Expression::kMaxLoads> loads;
  detail::Slots<Location, Expression::kMaxStores> stores;
};

namespace {

Sizes sizes_of(const Space& space) noexcept {
  return Sizes(space.sizes).first(static_cast<std::size_t>(space.dims));
}

}  // namespace

void Program::reset() noexcept {
  space_ = {};
  load_count_ = store_count_ = param_count_ = instruction_count_ = 0;
  value_count_ = operator_count_ = 0;
  unfused_bytes_ = 0;
}

// Whether an operator of one dimension works on as many elements as a space has, densely: in a
// space, which is dense, too, those are the elements that lie at the same places.
bool is_flat(const Expression& expression, const Space& space) noexcept {
  const auto fits = [&](const TensorAccess& access) {
    return access.numel == 1 ||
           (access.numel == space.numel && access.sizes.size() == 1 && access.contiguous);
  };
  const auto loads = expression.loads();
  const auto stores = expression.stores();
  return expression.reduced_dims() == 0 && stores[0].to.numel == space.numel &&
         std::all_of(loads.begin(), loads.end(), fits) &&
         std::all_of(stores.begin(), stores.end(),
                     [&](const Expression::Store& store) { return fits(store.to); });
}

// A program without operators takes the operator's space; any other one must have it already.
bool Program::fit_space(const Expression& expression, Draft& draft) const noexcept {
  const int reduced = expression.reduced_dims();
  const TensorAccess& shape = reduced > 0 ? expression.loads()[0] : expression.stores()[0].to;
  if (shape.sizes.size() > kMaxDims || shape.numel == 0) return false;
  // In rows of one element, what is one a row and what is one an element could not be told apart.
  if (reduced > 0 && product(shape.sizes.last(static_cast<std::size_t>(reduced))) == 1) {
    return false;
  }
  if (operator_count_ == 0) {
    draft.space = space_of(shape);
    draft.space.reduced_dims = reduced;
    return reduced == 0 || draft.space.contiguous;
  }
  draft.space = space_;
  if (equal(shape.sizes, sizes_of(space_))) {
    if (reduced == 0) return true;
    if (!space_.contiguous || (space_.reduced_dims != 0 && space_.reduced_dims != reduced)) {
      return false;
    }
    draft.space.reduced_dims = reduced;
    return true;
  }
  if (is_flat(expression, space_)) {
    draft.flat = true;
    return true;
  }
  draft.rows = true;
  return reduced == 0 && space_.reduced_dims > 0 && row_shaped(shape.sizes, space_);
}

// `rows_only`: it is known to be the result of a reduction, which may have lost its dimensions.
bool Program::place(const TensorAccess& access, const Draft& draft, Location& location,
                    bool rows_only) const noexcept {
  const Space& space = draft.space;
  const auto dims = static_cast<std::size_t>(space.dims);
  const auto item = static_cast<std::int64_t>(size_of(access.dtype));
  location.data = access.data;
  location.begin = access.data;
  location.dtype = access.dtype;
  if (access.sizes.size() > dims) return false;
  const bool full =
      access.sizes.size() == dims && equal(access.sizes, Sizes(space.sizes).first(dims));
  const bool flat = draft.flat && access.numel == space.numel;
  if (flat ||
      (full && (access.contiguous ? space.contiguous
                                  : equal(access.strides, Sizes(space.strides).first(dims))))) {
    location.layout = Layout::kFull;
    location.end = access.data + access.numel * item;
    return true;
  }
  if (space.reduced_dims > 0 && access.contiguous && row_shaped(access.sizes, space) &&
      (draft.rows || access.sizes.size() == dims || rows_only || access.numel == 1)) {
    location.layout = Layout::kRow;
    location.end = access.data + access.numel * item;
    return true;
  }
  if (access.numel == 1) {
    location.layout = Layout::kOne;
    location.end = access.data + item;
    return true;
  }
  if (draft.rows) return false;
  location.layout = Layout::kGeneral;
  std::int64_t lowest = 0, highest = 0;
  const std::size_t missing = dims - access.sizes.size();
  for (std::size_t d = 0; d < dims; ++d) {
    location.strides[d] = 0;
    if (d < missing || access.sizes[d - missing] == 1) continue;
    if (access.sizes[d - missing] != space.sizes[d]) return false;
    const std::int64_t stride = access.strides[d - missing];
    location.strides[d] = stride;
    (stride < 0 ? lowest : highest) += stride * (space.sizes[d] - 1);
  }
  location.begin = access.data + lowest * item;
  location.end = access.data + (highest + 1) * item;
  return true;
}

bool Program::known_dead(RecordedStore& store) noexcept {
  if (!store.dead && store.allocation != nullptr) {
    store.dead = freed_since(store.allocation, store.freed_state);
  }
  return store.dead;
}

bool Program::resolve_loads(const Expression& expression, Draft& draft) noexcept {
  const auto loads = expression.loads();
  for (std::size_t i = 0; i < loads.size(); ++i) {
    Location& location = draft.loads[draft.new_loads];
    if (!place(loads[i], draft, location)) return false;
    draft.existing[i] = -1;
    for (std::size_t s = store_count_; s-- > 0 && draft.existing[i] < 0;) {
      RecordedStore& store = stores_[s];
      // The latest result at a place is found first; those before it are dead.
      if (store.to.same(location, draft.space)) {
        draft.existing[i] = store.value;
      } else if (store.to.overlaps(location, draft.space) && !known_dead(store)) {
        return false;
      }
    }
    for (std::size_t l = 0; l < load_count_ && draft.existing[i] < 0; ++l) {
      if (loads_[l].from.same(location, draft.space)) draft.existing[i] = loads_[l].value;
    }
    if (draft.existing[i] >= 0) continue;
    draft.fresh[i] = draft.new_loads;
    for (std::uint8_t l = 0; l < draft.new_loads; ++l) {
      if (draft.loads[l].same(location, draft.space)) draft.fresh[i] = l;
    }
    if (draft.fresh[i] == draft.new_loads) ++draft.new_loads;
  }
  return true;
}

bool Program::resolve_stores(const Expression& expression, Draft& draft) noexcept {
  const auto stores = expression.stores();
  const Space& space = draft.space;
  for (std::size_t i = 0; i < stores.size(); ++i) {
    Location& to = draft.stores[i];
    const bool elements = equal(stores[i].to.sizes, sizes_of(space));
    const bool row = draft.rows || (expression.reduced_dims() > 0 && !elements);
    if (!place(stores[i].to, draft, to, row)) return false;
    if (to.layout == Layout::kOne) {
      const std::int64_t count =
          row ? product(Sizes(space.sizes).first(static_cast<std::size_t>(space.row_dims())))
              : space.numel;
      if (count != 1) return false;  // broadcast results there are none
      to.layout = row ? Layout::kRow : Layout::kFull;
    }
    if (row != (to.layout == Layout::kRow) || !to.distinct(space)) return false;
    for (std::size_t l = 0; l < load_count_; ++l) {
      if (to.overlaps(loads_[l].from, space) && !to.same(loads_[l].from, space)) return false;
    }
    for (std::uint8_t l = 0; l < draft.new_loads; ++l) {
      if (to.overlaps(draft.loads[l], space) && !to.same(draft.loads[l], space)) return false;
    }
    for (std::size_t s = 0; s < store_count_; ++s) {
      if (to.overlaps(stores_[s].to, space) && !to.same(stores_[s].to, space) &&
          !known_dead(stores_[s])) {
        return false;
      }
    }
    for (std::size_t s = 0; s < i; ++s) {
      if (to.overlaps(draft.stores[s], space)) return false;
    }
  }
  return true;
}

// Temporaries need no place among the outputs.
void Program::drop_dead_stores() noexcept {
  std::uint8_t kept = 0;
  for (std::uint8_t s = 0; s < store_count_; ++s) {
    if (!known_dead(stores_[s])) stores_[kept++] = stores_[s];
  }
  store_count_ = kept;
}

bool Program::has_room(const Expression& expression, const Draft& draft) const noexcept {
  std::size_t numbers = 0, results = 0;
  for (const Expression::Entry& entry : expression.entries()) {
    numbers += entry.kind == Expression::Kind::kNumber ? 1 : 0;
    results += entry.kind == Expression::Kind::kResult ? 1 : 0;
  }
  return operator_count_ < kMaxOperators && load_count_ + draft.new_loads <= Body::kMaxInputs &&
         store_count_ + expression.stores().size() <= Body::kMaxOutputs &&
         param_count_ + numbers <= Body::kMaxParams &&
         instruction_count_ + results <= Body::kMaxInstructions;
}

/// What is uniform once the space has rows: a program may have begun without reductions.
void Program::find_uniform(const Space& space, std::span<bool> uniform) const noexcept {
  for (std::size_t v = 0; v < value_count_; ++v) {
    const Value& value = values_[v];
    if (value.kind == ValueKind::kLoad) {
      uniform[v] = loads_[value.index].from.uniform(space);
    } else if (value.kind == ValueKind::kParam) {
      uniform[v] = true;
    } else {
      const Instruction& i = instructions_[value.index];
      const ValueId operands[] = {i.a, i.b, i.c};
      uniform[v] =
          is_reduction(i.op) || std::all_of(operands, operands + operand_count(i.op),
                                            [&](ValueId operand) { return uniform[operand]; });
    }
  }
}

// A reduction adds up the columns of its first operand, so that must have some.
bool Program::reduces_elements(const Draft& draft) const noexcept {
  if (draft.existing[0] < 0) return !draft.loads[draft.fresh[0]].uniform(draft.space);
  const auto reduced = static_cast<std::size_t>(draft.existing[0]);
  if (space_.reduced_dims > 0) return !values_[reduced].uniform;
  std::array<bool, kMaxValues> uniform;
  find_uniform(draft.space, uniform);
  return !uniform[reduced];
}

ValueId Program::add_value(ValueKind kind, std::size_t index, Type type, bool uniform) noexcept {
  values_[value_count_] = {kind, static_cast<std::uint8_t>(index), type, uniform};
  return value_count_++;
}

// Equal numbers are one parameter.
ValueId Program::add_param(Type type, Param number) noexcept {
  for (std::size_t v = 0; v < value_count_; ++v) {
    if (values_[v].kind == ValueKind::kParam && values_[v].type == type &&
        params_[values_[v].index].int64 == number.int64) {
      return static_cast<ValueId>(v);
    }
  }
  params_[param_count_] = number;
  return add_value(ValueKind::kParam, param_count_++, type, true);
}

void Program::commit(const Expression& expression, const Draft& draft) noexcept {
  if (draft.space.reduced_dims > 0 && space_.reduced_dims == 0) {
    std::array<bool, kMaxValues> uniform;
    find_uniform(draft.space, uniform);
    for (std::size_t v = 0; v < value_count_; ++v) values_[v].uniform = uniform[v];
  }
  space_ = draft.space;
  std::array<ValueId, Expression::kMaxLoads> fresh;
  for (std::uint8_t l = 0; l < draft.new_loads; ++l) {
    const Location& from = draft.loads[l];
    fresh[l] =
        add_value(ValueKind::kLoad, load_count_, register_type(from.dtype), from.uniform(space_));
    loads_[load_count_++] = {from, fresh[l]};
  }
  std::array<ValueId, Expression::kMaxNodes> ids;
  std::size_t node = 0;
  for (const Expression::Entry& entry : expression.entries()) {
    ValueId& id = ids[node++];
    if (entry.kind == Expression::Kind::kLoad) {
      id = draft.existing[entry.load] >= 0 ? static_cast<ValueId>(draft.existing[entry.load])
                                           : fresh[draft.fresh[entry.load]];
    } else if (entry.kind == Expression::Kind::kNumber) {
      id = add_param(entry.type, entry.number);
    } else {
      const Instruction& i = entry.instruction;
      instructions_[instruction_count_] = {i.op, i.type, ids[i.a], ids[i.b], ids[i.c]};
      bool uniform = true;
      const ValueId operands[] = {ids[i.a], ids[i.b], ids[i.c]};
      for (int operand = 0; operand < operand_count(i.op); ++operand) {
        uniform = uniform && values_[operands[operand]].uniform;
      }
      id = add_value(ValueKind::kResult, instruction_count_++, entry.type,
                     uniform || is_reduction(i.op));
    }
  }
  const auto stores = expression.stores();
  for (std::size_t i = 0; i < stores.size(); ++i) {
    for (std::size_t s = 0; s < store_count_; ++s) {
      if (stores_[s].to.same(draft.stores[i], space_)) stores_[s].dead = true;
    }
    const void* allocation = stores[i].to.allocation;
    stores_[store_count_++] = {draft.stores[i], ids[stores[i].node], false, allocation,
                               allocation != nullptr ? freed_state(allocation) : 0};
  }
  for (const TensorAccess& load : expression.loads()) {
    unfused_bytes_ += static_cast<std::uint64_t>(load.numel) * size_of(load.dtype);
  }
  for (const Expression::Store& store : stores) {
    unfused_bytes_ += static_cast<std::uint64_t>(store.to.numel) * size_of(store.to.dtype);
  }
  operators_[operator_count_++] = expression.name();
  prefetch_places();
}

// Of the next operator: the worker that ran the program's last use has them.
void Program::prefetch_places() const noexcept {
  const auto* const store = reinterpret_cast<const std::byte*>(stores_.data() + store_count_);
  for (std::size_t line = 0; line <= sizeof(RecordedStore); line += 64) {
    prefetch_for_write(store + line);
  }
  prefetch_for_write(values_.data() + value_count_);
  prefetch_for_write(instructions_.data() + instruction_count_);
  prefetch_for_write(operators_.data() + operator_count_);
}

bool Program::append(const Expression& expression) noexcept {
  Draft draft;
  if (!expression.fits() || !fit_space(expression, draft) || !resolve_loads(expression, draft) ||
      !resolve_stores(expression, draft)) {
    return false;
  }
  if (store_count_ + expression.stores().size() > Body::kMaxOutputs) drop_dead_stores();
  if (!has_room(expression, draft)) return false;
  if (expression.reduced_dims() > 0 && !reduces_elements(draft)) return false;
  commit(expression, draft);
  return true;
}

void Program::close() noexcept {
  for (std::size_t s = 0; s < store_count_; ++s) (void)known_dead(stores_[s]);
}

}  // namespace loom::fusion
