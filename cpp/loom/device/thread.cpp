// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/thread.h"

#include "loom/base/check.h"
#include "loom/base/float_mode.h"
#include "loom/base/mutex.h"
#include "loom/device/cpu_set.h"
#include "loom/device/failure.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <pthread.h>
#include <signal.h>
#include <thread>
#include <utility>

namespace loom {

struct detail::ThreadState {
  std::thread thread;
  std::function<void()> stop;
  // Set by who joined. Release / acquire: the thread's writes are visible to who sees it.
  std::atomic<bool> joined{false};
  /// Itself, to be kept for ever.
  std::shared_ptr<ThreadState> self;
};

namespace {

using detail::ProcessState;
using detail::ThreadState;

// Relaxed: set before the device is used, which is ordered with the thread's start.
std::atomic<ThreadWrapper> g_wrapper{nullptr};
// Relaxed: only asked, nothing is ordered by it.
std::atomic<bool> g_used{false};

thread_local bool t_loom_thread = false;

/// The threads that nobody has begun to join. Leaked: LoomThreads may outlive static destruction.
struct Registry {
  Mutex mutex;
  std::vector<std::shared_ptr<ThreadState>> threads LOOM_GUARDED_BY(mutex);
  // Those that callers of stop_threads() have begun to join, or have joined. Has room for all of
  // `threads`: at exit nothing is allocated.
  std::vector<std::shared_ptr<ThreadState>> stopping LOOM_GUARDED_BY(mutex);
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

// Made when the library is loaded: stop_threads() is for the end of a process without memory, too.
[[maybe_unused]] const Registry* const g_registry_made_early = &registry();

/// True for exactly one caller, who then joins the thread.
bool take(const std::shared_ptr<ThreadState>& state) {
  Registry& all = registry();
  MutexLock lock(all.mutex);
  const auto found = std::find(all.threads.begin(), all.threads.end(), state);
  if (found == all.threads.end()) return false;
  all.threads.erase(found);
  return true;
}

void keep_forever(std::shared_ptr<ThreadState> state) noexcept {
  ThreadState& kept = *state;
  kept.self = std::move(state);
}

/// A thread started in its scope takes no signals but those that it raises itself: the program's
/// handlers (Python's for Ctrl-C) belong on its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t set;
    sigfillset(&set);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGPROF}) {
      sigdelset(&set, own);
    }
    pthread_sigmask(SIG_SETMASK, &set, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Binds the calling thread to `cpus`. The mask that it inherited does not matter: it is that of
/// whichever thread was the first to use the device, which its owner may have bound to one core.
void bind_to(const std::vector<int>& cpus) {
  // A refusal costs speed, nothing else.
  try {
    if (!cpus.empty()) (void)CpuSet(cpus).apply_to_this_thread();
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as a refusal
  }
}

void run_wrapped(std::function<void()>& body) {
  const ThreadWrapper wrapper = g_wrapper.load(std::memory_order_relaxed);
  if (wrapper == nullptr) {
    body();
    return;
  }
  wrapper([](void* context) { (*static_cast<std::function<void()>*>(context))(); }, &body);
}

void mark_forked_child() {
  // Only in the child's one thread. The registry's threads do not exist here; they are never
  // joined, and its mutex, which another thread may have held, is never locked again.
  detail::g_process_state.store(ProcessState::kForked, std::memory_order_relaxed);
}

}  // namespace

void set_thread_wrapper(ThreadWrapper wrapper) noexcept {
  g_wrapper.store(wrapper, std::memory_order_relaxed);
}

void detail::set_observed(Observer observer, bool on) noexcept {
  if (in_bad_fork()) return;
  static constinit Mutex mutex;
  static unsigned observers = 0;
  MutexLock lock(mutex);
  const unsigned before = observers;
  const auto bit = static_cast<unsigned>(observer);
  observers = on ? observers | bit : observers & ~bit;
  if ((before == 0) == (observers == 0)) return;
  ProcessState expected = on ? ProcessState::kRunning : ProcessState::kTraced;
  // Fails when the process exits or was forked.
  (void)g_process_state.compare_exchange_strong(
      expected, on ? ProcessState::kTraced : ProcessState::kRunning, std::memory_order_relaxed);
}

void note_device_used() {
  // The handlers stay registered in a child and do nothing there.
  static const bool armed = [] {
    (void)registry();
    return pthread_atfork(nullptr, nullptr, mark_forked_child) == 0 &&
           std::atexit(stop_threads) == 0;
  }();
  LOOM_CHECK(armed, "note_device_used(): expected room for a fork and an exit handler, got none");
  g_used.store(true, std::memory_order_relaxed);
}

void stop_threads() {
  if (in_bad_fork()) return;
  Registry& all = registry();
  std::vector<std::shared_ptr<ThreadState>> threads;
  std::size_t others_threads = 0;  // the first ones of all.stopping, which nothing leaves
  {
    MutexLock lock(all.mutex);
    detail::g_process_state.store(ProcessState::kExiting, std::memory_order_relaxed);
    threads.swap(all.threads);
    others_threads = all.stopping.size();
    all.stopping.insert(all.stopping.end(), threads.begin(), threads.end());
  }
  for (const auto& state : threads) state->stop();
  for (const auto& state : threads) {
    if (state->thread.get_id() == std::this_thread::get_id()) {
      state->thread.detach();  // a command has called exit()
    } else {
      state->thread.join();
    }
    state->joined.store(true, std::memory_order_release);
    state->joined.notify_all();
  }
  if (on_loom_thread()) return;  // which another caller may be joining
  for (std::size_t i = 0; i < others_threads; ++i) {
    std::shared_ptr<ThreadState> state;
    {
      MutexLock lock(all.mutex);
      state = all.stopping[i];
    }
    state->joined.wait(false, std::memory_order_acquire);
  }
  report_unseen_failures();
}

bool device_was_used() noexcept { return g_used.load(std::memory_order_relaxed); }

bool on_loom_thread() noexcept { return t_loom_thread; }

LoomThread::LoomThread(const std::string& name, std::vector<int> cpus, std::function<void()> body,
                       std::function<void()> stop)
    : state_(std::make_shared<ThreadState>()) {
  check_not_forked();
  note_device_used();
  state_->stop = std::move(stop);
  // Started and registered in one step, so that the exit handler knows every running thread.
  MutexLock lock(registry().mutex);
  if (exiting()) {
    state_->joined.store(true, std::memory_order_relaxed);
    return;
  }
  registry().threads.reserve(registry().threads.size() + 1);
  registry().stopping.reserve(registry().stopping.size() + registry().threads.size() + 1);
  const SignalsBlocked for_the_new_thread;
  state_->thread = std::thread(
      [name = name.substr(0, 15), cpus = std::move(cpus), body = std::move(body)]() mutable {
        t_loom_thread = true;
        FloatMode{}.set();  // not the mode of the thread that happened to come first
        pthread_setname_np(pthread_self(), name.c_str());
        bind_to(cpus);
        run_wrapped(body);
      });
  registry().threads.push_back(state_);
}

LoomThread::~LoomThread() {
  if (in_bad_fork()) {
    // The thread does not exist here, and a joinable std::thread must not be destroyed.
    keep_forever(std::move(state_));
    return;
  }
  if (!take(state_)) {
    // The exit handler has it.
    state_->joined.wait(false, std::memory_order_acquire);
    return;
  }
  state_->stop();
  state_->thread.join();
}

}  // namespace loom
