// SPDX-License-Identifier: BSD-3-Clause
// Compiled with LOOM_LOCK_CHECKS only.
#include "loom/base/lock_checks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <sstream>
#include <string>
#include <vector>

namespace loom::lock_checks {
namespace {

struct Held {
  const Identity* lock;
  Site at;
};

/// The locks of one thread, oldest first. Trivial, so that destructors of thread-local objects may
/// still lock.
struct HeldLocks {
  static constexpr std::size_t kMost = 32;
  std::array<Held, kMost> locks;
  std::size_t count;
  bool checking;  ///< the checker itself is at work on this thread
};

constinit thread_local HeldLocks t_held{};

/// The first time that a lock of one class was taken while one of another was held.
struct Edge {
  Site held, taken;
};

/// The order of all classes, by their names.
struct Order {
  std::mutex mutex;
  std::map<std::string, std::map<std::string, Edge>> after;
};

// Leaked: threads lock while static objects are destroyed.
Order& order() {
  static auto* const instance = new Order;
  return *instance;
}

// Relaxed: set before the threads that ask it.
std::atomic<GilProbe> g_probe{nullptr};

std::string place(const Site& at) {
  std::string file = at.file_name();
  if (const std::size_t folder = file.find("loom/"); folder != std::string::npos) {
    file = file.substr(folder);
  }
  return file + ":" + std::to_string(at.line()) + ":" + std::to_string(at.column());
}

std::string class_of(const Identity& lock) {
  return lock.name() != nullptr ? lock.name() : "the lock of " + place(lock.made());
}

std::string describe_held() {
  std::ostringstream text;
  for (std::size_t i = 0; i < t_held.count; ++i) {
    const Held& each = t_held.locks[i];
    text << "\n  held: " << class_of(*each.lock) << ", taken at " << place(each.at);
  }
  return text.str();
}

/// The classes from `from` to `to` in the known order, or nothing.
bool find_path(const Order& known, const std::string& from, const std::string& to,
               std::vector<std::string>& path) {
  path.push_back(from);
  if (from == to) return true;
  if (const auto found = known.after.find(from); found != known.after.end()) {
    for (const auto& [next, edge] : found->second) {
      if (std::find(path.begin(), path.end(), next) == path.end() &&
          find_path(known, next, to, path)) {
        return true;
      }
    }
  }
  path.pop_back();
  return false;
}

/// Adds "`taken` after `held`", and returns what contradicts it, or "".
std::string add_edge(const std::string& held, const std::string& taken, Edge edge) {
  Order& known = order();
  const std::lock_guard lock(known.mutex);
  if (!known.after[held].try_emplace(taken, edge).second) return "";
  std::vector<std::string> path;
  if (!find_path(known, taken, held, path)) return "";
  std::ostringstream text;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const Edge& each = known.after[path[i]][path[i + 1]];
    text << "\n  earlier: " << path[i + 1] << " was taken at " << place(each.taken) << " while "
         << path[i] << " was held, taken at " << place(each.held);
  }
  return text.str();
}

void check_order(const Identity& lock, Site at) {
  if (t_held.count == 0) return;
  const std::string taken = class_of(lock);
  for (std::size_t i = 0; i < t_held.count; ++i) {
    const Held& each = t_held.locks[i];
    std::string wrong;
    if (each.lock == &lock) {
      wrong = "a lock is taken by a thread that holds it";
    } else if (const std::string held = class_of(*each.lock); held == taken) {
      wrong = "two locks of one class are held, which have no order";
    } else if (const std::string other = add_edge(held, taken, {each.at, at}); !other.empty()) {
      wrong = "two locks are taken in both orders" + other;
    }
    if (!wrong.empty()) {
      report((wrong + "\n  now: " + taken + " is taken at " + place(at) + describe_held()).c_str());
    }
  }
}

void push(const Identity& lock, Site at) {
  if (t_held.count == HeldLocks::kMost) report("a thread holds more locks than can be noted");
  t_held.locks[t_held.count++] = {&lock, at};
}

}  // namespace

void report(const char* text) noexcept {
  std::fprintf(stderr, "loom: lock check: %s\n", text);
  std::fflush(stderr);
  std::abort();
}

void Identity::locks(Site at) const noexcept {
  if (t_held.checking) return;
  t_held.checking = true;
  try {
    check_order(*this, at);
  } catch (const std::bad_alloc&) {
    // Tests have memory run out; what is not noted is seen at another time.
  }
  push(*this, at);
  t_held.checking = false;
}

void Identity::tried(Site at) const noexcept {
  if (!t_held.checking) push(*this, at);
}

void Identity::unlocks() const noexcept {
  if (t_held.checking) return;
  for (std::size_t i = t_held.count; i-- > 0;) {
    if (t_held.locks[i].lock != this) continue;
    std::copy(t_held.locks.begin() + static_cast<std::ptrdiff_t>(i) + 1,
              t_held.locks.begin() + static_cast<std::ptrdiff_t>(t_held.count),
              t_held.locks.begin() + static_cast<std::ptrdiff_t>(i));
    --t_held.count;
    return;
  }
}

void may_wait(const char* what) noexcept {
  for (std::size_t i = 0; i < t_held.count; ++i) {
    if (t_held.locks[i].lock->allowed_in_waits()) continue;
    report(("a thread waits for " + std::string(what) + " while it holds a lock" + describe_held())
               .c_str());
  }
}

void waits(const char* what) noexcept {
  may_wait(what);
  const GilProbe probe = g_probe.load(std::memory_order_relaxed);
  if (probe != nullptr && probe()) {
    report(("a thread waits for " + std::string(what) + " while it has the GIL").c_str());
  }
}

void set_gil_probe(GilProbe probe) noexcept { g_probe.store(probe, std::memory_order_relaxed); }

void takes_gil() noexcept {
  if (t_held.count == 0) return;
  report(("a thread takes the GIL while it holds a lock" + describe_held()).c_str());
}

}  // namespace loom::lock_checks
