// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A mutex that clang's thread-safety analysis understands. Members that a mutex protects carry
// LOOM_GUARDED_BY, functions that expect it held carry LOOM_REQUIRES; -Wthread-safety checks both.

#include <condition_variable>
#include <mutex>

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
#define LOOM_TRY_ACQUIRE(...) LOOM_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define LOOM_RELEASE(...) LOOM_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define LOOM_EXCLUDES(...) LOOM_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define LOOM_NO_THREAD_SAFETY_ANALYSIS LOOM_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace loom {

/// std::mutex with annotations. Never recursive.
class LOOM_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() LOOM_ACQUIRE() { mutex_.lock(); }
  void unlock() LOOM_RELEASE() { mutex_.unlock(); }
  bool try_lock() LOOM_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope.
class LOOM_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOOM_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() LOOM_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// A condition variable for Mutex; waits as std::condition_variable does, woken spuriously too.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  /// Requires: `mutex` held by the caller; held again on return.
  void wait(Mutex& mutex) LOOM_REQUIRES(mutex) { condition_.wait(mutex); }
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace loom
