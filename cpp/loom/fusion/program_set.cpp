// SPDX-License-Identifier: BSD-3-Clause
#include "loom/fusion/program_set.h"

#include "loom/device/address.h"
#include "loom/fusion/freed.h"

#include <algorithm>
#include <new>
#include <utility>

namespace loom::fusion {
namespace {

constexpr std::size_t kNoPlace = SIZE_MAX;

// In the list of the scope, of the operator that is recorded next.
thread_local std::size_t t_place = kNoPlace;

std::pair<const std::byte*, const std::byte*> span_of(const TensorAccess& access) noexcept {
  std::int64_t lowest = 0, highest = 0;
  for (std::size_t d = 0; d < access.sizes.size(); ++d) {
    const std::int64_t reach = access.strides[d] * (access.sizes[d] - 1);
    (reach < 0 ? lowest : highest) += reach;
  }
  const auto item = static_cast<std::int64_t>(size_of(access.dtype));
  return {access.data + lowest * item, access.data + (highest + 1) * item};
}

bool overlap(const Access& a, const Access& b) noexcept {
  const auto* const first = static_cast<const std::byte*>(a.address);
  const auto* const second = static_cast<const std::byte*>(b.address);
  return first < second + b.bytes && second < first + a.bytes;
}

template <class Visit>
void each_access(const Expression& expression, Visit&& visit) {
  for (const TensorAccess& load : expression.loads()) visit(load);
  for (const Expression::Store& store : expression.stores()) visit(store.to);
}

}  // namespace

IndependentScope::IndependentScope() noexcept : before_(std::exchange(t_place, 0)) {}
IndependentScope::~IndependentScope() { t_place = before_; }
bool IndependentScope::active() noexcept { return t_place != kNoPlace; }

void ProgramSet::reset(const Setting& setting, std::unique_ptr<Producer> producer) {
  setting_ = setting;
  producer_ = std::move(producer);
  held_ = HeldMemory();
  producer_accesses_.clear();
  result_allocation_ = nullptr;
  result_dead_ = false;
  if (producer_ != nullptr) {
    producer_->accesses(producer_accesses_);
    result_allocation_ = producer_->result().allocation;
    if (result_allocation_ != nullptr) result_state_ = freed_state(result_allocation_);
  }
  count_ = 0;
  indexed_ = full_ = false;
  ranges_.clear();
  elements_.store(0, std::memory_order_relaxed);
  closed_.store(false, std::memory_order_relaxed);  // relaxed: nobody else has the set
}

void ProgramSet::drop_kernels() noexcept {
  producer_.reset();
  tasks_.clear();
  held_.set(0);
}

void ProgramSet::trim(std::size_t most) noexcept {
  if (programs_.size() > most) programs_.resize(most);
  count_ = 0;
}

Program& ProgramSet::add_program() {
  if (count_ == programs_.size()) programs_.push_back(std::make_unique<Program>());
  Program& program = *programs_[count_++];
  held_.set(count_ * sizeof(Program));
  program.reset();
  return program;
}

// Of what a producer writes: its result, and an operand that lies as that does and of which nothing
// reads the rows any more that are final in the result (kUpdate). What follows takes its place as a
// whole or leaves it alone.
bool may_replace(const Access& access, const Access& written) noexcept {
  if (access.kind != AccessKind::kUpdate || !overlap(access, written)) return true;
  return access.address == written.address && access.bytes == written.bytes;
}

// A rectangle of the result goes through the program while others are not there yet, and while the
// producer still reads its operands for them.
bool ProgramSet::suits_producer(const Expression& expression) const {
  // Those of a list would each need a program.
  if ((expression.independent() && t_place != kNoPlace) || expression.reduced_dims() > 0) {
    return false;
  }
  const Matrix result = producer_->result();
  bool suits = true, reads_result = false;
  const auto check_result = [&](const TensorAccess& access) {
    const auto [begin, end] = span_of(access);
    if (begin >= result.end() || result.data >= end) return false;
    suits = suits && access.data == result.data && access.dtype == result.dtype &&
            access.numel == result.numel() && end == result.end();
    return true;
  };
  for (const TensorAccess& load : expression.loads()) {
    reads_result = check_result(load) || reads_result;
  }
  for (const Expression::Store& store : expression.stores()) {
    suits = suits && store.to.numel == result.numel();
    (void)check_result(store.to);
    const auto [begin, end] = span_of(store.to);
    const Access written{device_address(begin), static_cast<std::size_t>(end - begin),
                         AccessKind::kReplace};
    for (const Access& access : producer_accesses_) {
      suits = suits && (access.writes() ? may_replace(access, written) : !overlap(access, written));
    }
  }
  return suits && (count_ > 0 || reads_result);
}

bool ProgramSet::add_ahead(std::unique_ptr<Task>& task) {
  if (producer_ == nullptr || count_ > 0 || tasks_.size() == kMaxTasks) return false;
  AccessList accesses;
  task->accesses(accesses);
  for (const Access& own : accesses) {
    for (const Access& other : producer_accesses_) {
      if ((own.writes() || other.writes()) && overlap(own, other)) return false;
    }
  }
  tasks_.push_back(std::move(task));
  note_appended();
  return true;
}

bool ProgramSet::append(const Expression& expression) {
  if (full_ || (producer_ != nullptr && !suits_producer(expression))) return false;
  const std::size_t place = expression.independent() ? t_place : kNoPlace;
  if (!append_at(place, expression)) return false;
  if (place != kNoPlace) ++t_place;
  return true;
}

bool ProgramSet::append_at(std::size_t place, const Expression& expression) {
  const bool independent = expression.independent();
  if (count_ == 0) {
    (void)add_program();
    if (append_to(0, expression)) return true;
    count_ = 0;
    return false;
  }
  if (producer_ != nullptr || (count_ == 1 && !independent)) return append_to(0, expression);
  if (!indexed_) start_index();
  bool covered = true;
  const std::size_t owner = owner_of(expression, covered);
  if (owner == kSeveral) return false;
  if (owner != kNone) return append_to(owner, expression, covered);
  if (!independent) return false;
  if (place < count_ && append_to(place, expression)) return true;
  if (count_ == kMaxPrograms) return false;
  (void)add_program();
  if (append_to(count_ - 1, expression)) return true;
  --count_;
  return false;
}

bool ProgramSet::append_to(std::size_t program, const Expression& expression, bool covered) {
  const bool first = programs_[program]->operators().empty();
  if (!programs_[program]->append(expression)) return false;
  if (first) {
    elements_.store(elements() + programs_[program]->space().numel, std::memory_order_relaxed);
  }
  if (indexed_ && !covered) add_ranges(expression, program);
  note_appended();
  return true;
}

void ProgramSet::start_index() {
  ranges_.clear();  // of an attempt that found no memory
  for (std::size_t p = 0; p < count_; ++p) {
    for (const RecordedLoad& load : programs_[p]->loads()) {
      add_range(load.from.begin, load.from.end, p);
    }
    for (const RecordedStore& store : programs_[p]->stores()) {
      add_range(store.to.begin, store.to.end, p);
    }
  }
  indexed_ = true;
}

std::size_t ProgramSet::owner_of(const Expression& expression, bool& covered) const {
  std::size_t owner = kNone;
  each_access(expression, [&](const TensorAccess& access) {
    const auto [begin, end] = span_of(access);
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second.end > begin) --it;
    covered = covered && it != ranges_.end() && it->first <= begin && it->second.end >= end;
    for (; it != ranges_.end() && it->first < end; ++it) {
      const std::size_t found = it->second.program;
      owner = owner == kNone || owner == found ? found : kSeveral;
    }
  });
  return owner;
}

// Ranges of one program that overlap become one.
void ProgramSet::add_range(const std::byte* begin, const std::byte* end, std::size_t program) {
  auto it = ranges_.upper_bound(begin);
  if (it != ranges_.begin() && std::prev(it)->second.end > begin) --it;
  while (it != ranges_.end() && it->first < end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second.end);
    it = ranges_.erase(it);
  }
  ranges_.emplace(begin, Range{end, program});
}

// The operator is part of its program already.
void ProgramSet::add_ranges(const Expression& expression, std::size_t program) noexcept {
  try {
    each_access(expression, [&](const TensorAccess& access) {
      const auto [begin, end] = span_of(access);
      add_range(begin, end, program);
    });
  } catch (const std::bad_alloc&) {
    full_ = true;
  }
}

void ProgramSet::close() noexcept {
  for (std::size_t p = 0; p < count_; ++p) programs_[p]->close();
  result_dead_ = result_allocation_ != nullptr && freed_since(result_allocation_, result_state_);
  closed_.store(true, std::memory_order_release);
}

}  // namespace loom::fusion
