// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/command_trace.h"

#include "loom/base/futex.h"
#include "loom/device/address.h"
#include "loom/device/thread.h"

#include <algorithm>
#include <new>
#include <utility>

namespace loom {
namespace {

thread_local LaunchContext t_context;

std::int32_t thread_number() noexcept {
  thread_local const auto number = static_cast<std::int32_t>(::gettid());
  return number;
}

}  // namespace

CommandTrace& CommandTrace::instance() {
  // Leaked: workers may write into records until the process ends.
  static auto* const trace = new CommandTrace;
  return *trace;
}

CommandRecord* CommandTrace::Store::take() {
  if (used == capacity) return nullptr;
  if (used % kChunk == 0) chunks.push_back(std::make_unique<CommandRecord[]>(kChunk));
  CommandRecord* const record = &chunks[used / kChunk][used % kChunk];
  ++used;
  return record;
}

template <class Visit>
void CommandTrace::Store::for_each(Visit&& visit) const {
  for (std::size_t i = 0; i < used; ++i) visit(chunks[i / kChunk][i % kChunk]);
}

bool CommandTrace::Store::in_use() const {
  bool any = false;
  for_each([&](const CommandRecord& record) {
    any = any || !record.finished.load(std::memory_order_acquire) ||
          record.launch_end_ns.load(std::memory_order_acquire) == 0;
  });
  return any;
}

void CommandTrace::retire(std::unique_ptr<Store> store) noexcept {
  std::erase_if(retired_, [](const auto& old) { return !old->in_use(); });
  if (store == nullptr || !store->in_use()) return;
  try {
    retired_.push_back(std::move(store));
  } catch (const std::bad_alloc&) {
    static_cast<void>(store.release());  // workers write into it: it is never freed
  }
}

void CommandTrace::start(std::size_t capacity) {
  if (in_bad_fork()) return;  // as in stop()
  auto store = std::make_unique<Store>(capacity);
  MutexLock lock(mutex_);
  retire(std::exchange(store_, std::move(store)));
  detail::set_observed(detail::Observer::kTrace, true);
}

// No record is taken any more. Those whose command is submitted are waited for, without the lock,
// and without the wait wrapper: the caller may hold a lock of the profiler's, for which another
// thread may wait with the GIL that the wrapper would want back. Workers never need the GIL.
CommandTrace::Result CommandTrace::Store::read() const {
  static const std::atomic<bool> never{false};
  Result result;
  result.dropped = dropped;
  result.spans.reserve(used);
  for_each([&](const CommandRecord& record) {
    if (!record.finished.load(std::memory_order_acquire) && !on_loom_thread()) {
      record.queue->timeline().wait_unless(record.queue->submitted(), never);
    }
    if (record.finished.load(std::memory_order_acquire)) {
      if (record.span.name == nullptr) return;  // abandoned
      result.spans.push_back(record.span);
      result.spans.back().launch_end_ns = record.launch_end_ns.load(std::memory_order_acquire);
    } else {
      ++result.unfinished;
    }
  });
  return result;
}

CommandTrace::Result CommandTrace::stop() {
  // Another thread may have held the mutex when this process was forked.
  if (in_bad_fork()) return {};
  std::unique_ptr<Store> store;
  {
    MutexLock lock(mutex_);
    detail::set_observed(detail::Observer::kTrace, false);
    store = std::move(store_);
  }
  if (store == nullptr) return {};
  Result result;
  try {
    result = store->read();
  } catch (...) {
    MutexLock lock(mutex_);
    retire(std::move(store));
    throw;
  }
  MutexLock lock(mutex_);
  retire(std::move(store));
  return result;
}

CommandRecord* CommandTrace::begin(const char* name, const Queue& queue) noexcept {
  if (in_bad_fork()) return nullptr;  // as in stop()
  const std::int64_t now = now_ns();
  MutexLock lock(mutex_);
  if (store_ == nullptr) return nullptr;
  CommandRecord* record = nullptr;
  try {
    record = store_->take();
  } catch (const std::bad_alloc&) {
    record = nullptr;  // as a full store
  }
  if (record == nullptr) {
    ++store_->dropped;
    return nullptr;
  }
  record->span.name = name;
  record->span.queue = queue.id();
  record->span.context = t_context;
  record->span.thread = thread_number();
  record->span.launch_begin_ns = now;
  record->queue = &queue;
  return record;
}

void CommandTrace::set_context(LaunchContext context) noexcept { t_context = context; }

LaunchContext CommandTrace::context() noexcept { return t_context; }

void note_launched(CommandRecord& record) noexcept {
  record.launch_end_ns.store(now_ns(), std::memory_order_release);
}

void note_start(CommandRecord& record, const Command& command) noexcept {
  thread_local AccessList accesses;  // its memory is used again
  accesses.clear();
  try {
    command.accesses(accesses);
    if (const char* const label = command.label()) record.span.name = label;
  } catch (const std::exception&) {
    accesses.clear();  // a command without sizes is better than none
  }
  for (const Access& access : accesses) {
    if (device_of_address(access.address) < 0) continue;
    (access.writes() ? record.span.bytes_written : record.span.bytes_read) += access.bytes;
  }
  record.span.started_ns = now_ns();
}

void note_abandoned(CommandRecord& record) noexcept {
  record.span.name = nullptr;
  record.finished.store(true, std::memory_order_release);
}

void note_end(CommandRecord& record) noexcept {
  record.span.ended_ns = now_ns();
  record.finished.store(true, std::memory_order_release);
}

}  // namespace loom
