// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a build with LOOM_LOCK_CHECKS=ON notes of locks and waits, so that a deadlock is reported
// where it could happen and not only when it does. Two locks are taken in one order everywhere;
// nobody waits for the device, a futex or room in a queue while it holds a lock that is not made
// for that; the GIL comes before our locks, and nobody waits with it. Locks are told apart by their
// class: their name, or the place where they are made. A report names what was broken and the
// places in the source, and the process aborts. Without LOOM_LOCK_CHECKS all of it is empty.
// Thread: any.

#include "loom/base/export.h"

#include <cstdint>
#ifdef LOOM_LOCK_CHECKS
#include <source_location>
#endif

namespace loom {

/// Whether a thread may wait while it holds a lock.
enum class HeldInWaits : bool { kNo, kAllowed };

namespace lock_checks {

/// Whether the calling thread has the GIL.
using GilProbe = bool (*)() noexcept;

#ifdef LOOM_LOCK_CHECKS

/// A place in the source: the caller's, where its current() is a default argument.
using Site = std::source_location;

/// What a lock is; a part of it. Its calls stand before it is taken, and before it is given back.
class LOOM_API Identity {
 public:
  constexpr Identity(const char* name, HeldInWaits held, Site made) noexcept
      : name_(name), held_(held), made_(made) {}

  /// Reports a reversed order, a second lock of the class, and this one's being held already.
  void locks(Site at) const noexcept;
  /// Nobody waits for what is only tried: no order.
  void tried(Site at) const noexcept;
  void unlocks() const noexcept;

  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] bool allowed_in_waits() const noexcept { return held_ == HeldInWaits::kAllowed; }
  [[nodiscard]] Site made() const noexcept { return made_; }

 private:
  const char* name_;
  HeldInWaits held_;
  Site made_;
};

/// Reports the locks that the calling thread holds and that must not be held while it waits for
/// `what`: it may have to.
LOOM_API void may_wait(const char* what) noexcept;
/// As may_wait(), and reports the GIL: the thread waits now.
LOOM_API void waits(const char* what) noexcept;

/// Set once; null for none.
LOOM_API void set_gil_probe(GilProbe probe) noexcept;

/// Reports the locks that the calling thread holds: it is about to take the GIL.
LOOM_API void takes_gil() noexcept;

/// Prints the report and aborts.
[[noreturn]] LOOM_API void report(const char* text) noexcept;

#else

struct Site {
  static consteval Site current() { return {}; }
};

struct Identity {
  constexpr Identity(const char* /*name*/, HeldInWaits /*held*/, Site /*made*/) noexcept {}
  void locks(Site /*at*/) const noexcept {}
  void tried(Site /*at*/) const noexcept {}
  void unlocks() const noexcept {}
};

inline void may_wait(const char* /*what*/) noexcept {}
inline void waits(const char* /*what*/) noexcept {}
inline void set_gil_probe(GilProbe /*probe*/) noexcept {}
inline void takes_gil() noexcept {}

#endif

}  // namespace lock_checks
}  // namespace loom
