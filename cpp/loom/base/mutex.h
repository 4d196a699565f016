// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Mutexes that clang's thread-safety analysis understands. Members that a mutex protects carry
// LOOM_GUARDED_BY, functions that expect it held carry LOOM_REQUIRES; -Wthread-safety checks both.
//
// Forks: in a child that was forked after loom had been used, lock() throws what any use of loom
// there throws. A lock may have been inherited as taken by a thread that the child does not have,
// and would be waited for for ever. One that is free is refused as well: fork() copies page after
// page while the parent's other threads run, so that a free lock does not say that what it protects
// is whole; and a child that sometimes works would fail in its user's hands. The check is a relaxed
// load and a branch beside the lock's atomic instruction.
// Destructors and noexcept functions ask in_bad_fork() before they lock, and leave quietly.
//
// A lock's name is what lock_checks.h calls it; one without a name is known by the place where it
// is made, which is the constructor's for a member: a class with several names them.

#include "loom/base/lock_checks.h"
#include "loom/base/process_state.h"

#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define LOOM_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define LOOM_THREAD_ANNOTATION(x)
#endif

#define LOOM_CAPABILITY(x) LOOM_THREAD_ANNOTATION(capability(x))
#define LOOM_SCOPED_CAPABILITY LOOM_THREAD_ANNOTATION(scoped_lockable)
#define LOOM_GUARDED_BY(x) LOOM_THREAD_ANNOTATION(guarded_by(x))
#define LOOM_REQUIRES(...) LOOM_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define LOOM_ACQUIRE(...) LOOM_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define LOOM_ACQUIRE_SHARED(...) LOOM_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define LOOM_RELEASE_SHARED(...) LOOM_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define LOOM_TRY_ACQUIRE(...) LOOM_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define LOOM_RELEASE(...) LOOM_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define LOOM_EXCLUDES(...) LOOM_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define LOOM_NO_THREAD_SAFETY_ANALYSIS LOOM_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace loom {

using lock_checks::Site;

/// std::mutex with annotations. Never recursive.
/// lock() throws loom::Error when in_bad_fork(), try_lock() fails.
class LOOM_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex(Site made = Site::current()) noexcept : Mutex(nullptr, HeldInWaits::kNo, made) {}
  /// `name`: a literal.
  constexpr explicit Mutex(const char* name, HeldInWaits held = HeldInWaits::kNo,
                           Site made = Site::current()) noexcept
      : identity_(name, held, made) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock(Site at = Site::current()) LOOM_ACQUIRE() {
    check_not_forked();
    identity_.locks(at);
    mutex_.lock();
  }
  void unlock() LOOM_RELEASE() {
    identity_.unlocks();
    mutex_.unlock();
  }
  bool try_lock(Site at = Site::current()) LOOM_TRY_ACQUIRE(true) {
    if (in_bad_fork() || !mutex_.try_lock()) return false;
    identity_.tried(at);
    return true;
  }

 private:
  std::mutex mutex_;
  [[no_unique_address]] lock_checks::Identity identity_;
};

/// Holds a Mutex for a scope.
class LOOM_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex, Site at = Site::current()) LOOM_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.lock(at);
  }
  ~MutexLock() LOOM_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// std::shared_mutex with annotations; forks as for Mutex.
class LOOM_CAPABILITY("shared_mutex") SharedMutex {
 public:
  constexpr SharedMutex(Site made = Site::current()) noexcept
      : SharedMutex(nullptr, HeldInWaits::kNo, made) {}
  /// `name`: a literal.
  constexpr explicit SharedMutex(const char* name, HeldInWaits held = HeldInWaits::kNo,
                                 Site made = Site::current()) noexcept
      : identity_(name, held, made) {}
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock(Site at = Site::current()) LOOM_ACQUIRE() {
    check_not_forked();
    identity_.locks(at);
    mutex_.lock();
  }
  void unlock() LOOM_RELEASE() {
    identity_.unlocks();
    mutex_.unlock();
  }
  void lock_shared(Site at = Site::current()) LOOM_ACQUIRE_SHARED() {
    check_not_forked();
    identity_.locks(at);
    mutex_.lock_shared();
  }
  void unlock_shared() LOOM_RELEASE_SHARED() {
    identity_.unlocks();
    mutex_.unlock_shared();
  }

 private:
  std::shared_mutex mutex_;
  [[no_unique_address]] lock_checks::Identity identity_;
};

/// Holds a SharedMutex for a scope, alone.
class LOOM_SCOPED_CAPABILITY ExclusiveLock {
 public:
  explicit ExclusiveLock(SharedMutex& mutex, Site at = Site::current()) LOOM_ACQUIRE(mutex)
      : mutex_(mutex) {
    mutex_.lock(at);
  }
  ~ExclusiveLock() LOOM_RELEASE() { mutex_.unlock(); }
  ExclusiveLock(const ExclusiveLock&) = delete;
  ExclusiveLock& operator=(const ExclusiveLock&) = delete;

 private:
  SharedMutex& mutex_;
};

/// Holds a SharedMutex for a scope, beside other readers.
class LOOM_SCOPED_CAPABILITY SharedLock {
 public:
  explicit SharedLock(SharedMutex& mutex, Site at = Site::current()) LOOM_ACQUIRE_SHARED(mutex)
      : mutex_(mutex) {
    mutex_.lock_shared(at);
  }
  ~SharedLock() LOOM_RELEASE() { mutex_.unlock_shared(); }
  SharedLock(const SharedLock&) = delete;
  SharedLock& operator=(const SharedLock&) = delete;

 private:
  SharedMutex& mutex_;
};

/// A condition variable for Mutex; waits as std::condition_variable does, woken spuriously too.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  /// Requires: `mutex` held by the caller; held again on return.
  void wait(Mutex& mutex, Site at = Site::current()) LOOM_REQUIRES(mutex) {
    WaitingLock lock{mutex, at};
    condition_.wait(lock);
  }
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  /// The mutex as the wait gives it back and takes it again.
  struct WaitingLock {
    Mutex& mutex;
    Site at;
    void lock() LOOM_NO_THREAD_SAFETY_ANALYSIS { mutex.lock(at); }
    void unlock() LOOM_NO_THREAD_SAFETY_ANALYSIS {
      mutex.unlock();
      lock_checks::waits("a condition");
    }
  };

  std::condition_variable_any condition_;
};

#ifndef LOOM_LOCK_CHECKS
static_assert(sizeof(Mutex) == sizeof(std::mutex) &&
              sizeof(SharedMutex) == sizeof(std::shared_mutex));
#endif

}  // namespace loom
