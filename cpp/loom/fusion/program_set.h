// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The open command of a queue: one program, or several on separate memory. An optimiser's step goes
// through all tensors with one operator before it comes to the next; each tensor then has a program
// of its own, and they all run as one grid. Or a producer (producer.h), tasks ahead of it, and then
// a program on its result or none. Thread: as Program's.

#include "loom/base/export.h"
#include "loom/base/float_mode.h"
#include "loom/device/command_buffer.h"
#include "loom/device/held_memory.h"
#include "loom/device/open_command.h"
#include "loom/fusion/expression.h"
#include "loom/fusion/producer.h"
#include "loom/fusion/program.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace loom::fusion {

class LOOM_API ProgramSet final : public OpenCommand {
 public:
  static constexpr std::size_t kMaxPrograms = 1024, kMaxTasks = 4;

  ProgramSet() = default;

  /// What all operators of a set have in common, as they run in one command.
  struct Setting {
    bool traced;           ///< profiles know of the command
    FloatMode float_mode;  ///< of the threads that recorded
    friend bool operator==(const Setting&, const Setting&) = default;
  };

  /// Makes it empty and open.
  void reset(const Setting& setting, std::unique_ptr<Producer> producer = nullptr);
  [[nodiscard]] const Setting& setting() const noexcept { return setting_; }
  /// What runs before the programs, or null.
  [[nodiscard]] Producer* producer() const noexcept { return producer_.get(); }
  /// Whether nobody but the program sees the producer's result. Requires: closed.
  [[nodiscard]] bool result_dead() const noexcept { return result_dead_; }
  /// Takes the task if it may run before the producer: returns false and leaves it if not.
  [[nodiscard]] bool add_ahead(std::unique_ptr<Task>& task);
  [[nodiscard]] std::span<const std::unique_ptr<Task>> tasks() const noexcept { return tasks_; }

  /// Gives back the memory of all programs but `most`, for a set that waits to be used again.
  void trim(std::size_t most) noexcept;
  /// Drops what is no program.
  void drop_kernels() noexcept;
  /// How many programs it has memory for, in use or not.
  [[nodiscard]] std::size_t kept() const noexcept { return programs_.size(); }

  /// Adds the operator to the program that it belongs to, or returns false and changes nothing.
  /// One that is independent (expression.h) and shares no memory with any program joins that of its
  /// place in the list, so that an operator on several lists finds them together; or it gets a new
  /// one. After a producer there is one program: the first operator reads the result, and all can
  /// run on a part of it before the rest is there.
  [[nodiscard]] bool append(const Expression& expression);

  /// Its memory is a graph's from now on, and no longer that of a queued command.
  void note_captured() noexcept { held_.note_captured(); }

  void close() noexcept override;
  /// Acquire: the recording is visible to who sees it closed.
  [[nodiscard]] bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// Changes with every operator that is appended and every task. Any thread may ask.
  [[nodiscard]] std::uint32_t appended() const noexcept {
    return appended_.load(std::memory_order_relaxed);  // relaxed: a sign of life, nothing more
  }

  /// Of all programs' spaces. Any thread may ask.
  [[nodiscard]] std::int64_t elements() const noexcept {
    return elements_.load(std::memory_order_relaxed);  // relaxed: an estimate
  }

  [[nodiscard]] std::span<const std::unique_ptr<Program>> programs() const noexcept {
    return {programs_.data(), count_};
  }

 private:
  // Memory that one program uses: by its first address, without overlaps.
  struct Range {
    const std::byte* end;
    std::size_t program;
  };
  static constexpr std::size_t kNone = SIZE_MAX, kSeveral = SIZE_MAX - 1;

  [[nodiscard]] bool suits_producer(const Expression& expression) const;
  [[nodiscard]] bool append_at(std::size_t place, const Expression& expression);
  [[nodiscard]] bool append_to(std::size_t program, const Expression& expression,
                               bool covered = false);
  [[nodiscard]] Program& add_program();
  void note_appended() noexcept { appended_.store(appended() + 1, std::memory_order_relaxed); }
  void start_index();
  /// `covered` becomes false if the owner does not use all of the operator's memory already.
  [[nodiscard]] std::size_t owner_of(const Expression& expression, bool& covered) const;
  void add_range(const std::byte* begin, const std::byte* end, std::size_t program);
  /// Without memory for them the set takes no more operators.
  void add_ranges(const Expression& expression, std::size_t program) noexcept;

  std::unique_ptr<Producer> producer_;
  std::vector<std::unique_ptr<Task>> tasks_;  ///< that run before the producer
  AccessList producer_accesses_;
  const void* result_allocation_ = nullptr;
  std::uint64_t result_state_ = 0;  ///< freed_state() at the beginning
  bool result_dead_ = false;
  std::vector<std::unique_ptr<Program>> programs_;  // kept for the next use; count_ are in use
  std::size_t count_ = 0;
  HeldMemory held_;  ///< the programs that are in use
  Setting setting_{};
  bool indexed_ = false;  ///< only a set of several programs must know who uses what
  bool full_ = false;     ///< who uses what is not known any more
  std::map<const std::byte*, Range> ranges_;
  // Written under the lock of submissions only, so that a load and a store make no lock of their
  // own.
  std::atomic<std::uint32_t> appended_{0};
  std::atomic<std::int64_t> elements_{0};
  // Release in close(), acquire in closed(). On a line of its own: a worker that waits looks at it
  // all the time, and each of its looks would take the line away from who appends.
  alignas(64) std::atomic<bool> closed_{false};
};

/// While it lives, operators that this thread records are independent: those of one call that works
/// on a list of tensors, one after the other.
class LOOM_API IndependentScope {
 public:
  IndependentScope() noexcept;
  ~IndependentScope();
  IndependentScope(const IndependentScope&) = delete;
  IndependentScope& operator=(const IndependentScope&) = delete;
  [[nodiscard]] static bool active() noexcept;

 private:
  const std::size_t before_;
};

}  // namespace loom::fusion
