// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/command_graph.h"

#include "loom/base/check.h"
#include "loom/device/command_trace.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"

#include <atomic>

namespace loom {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  // Relaxed: only uniqueness matters.
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

CommandGraph::CommandGraph() : id_(next_id()) {}

CommandGraph::~CommandGraph() = default;

void CommandGraph::begin_capture(Queue& queue) {
  check_not_forked();
  begun_by_ = std::this_thread::get_id();
  device_ = queue.id().device;
  {
    MutexLock lock(mutex_);
    open_ = true;
  }
  try {
    join(queue);
  } catch (...) {
    MutexLock lock(mutex_);
    open_ = false;
    throw;
  }
}

void CommandGraph::join(Queue& queue) {
  LOOM_CHECK(queue.id().device == device_, "graph capture: expected a stream of loom:", device_,
             ", got one of loom:", queue.id().device, "; a graph has the work of one device");
  LOOM_CHECK(queue.attach(shared_from_this()),
             "graph capture: expected a stream that nobody captures, got one that is captured "
             "in another graph");
}

void CommandGraph::admit(Queue& queue) {
  MutexLock lock(mutex_);
  LOOM_CHECK(open_, "graph capture: expected a capture that is under way, got one that has ended");
  queues_.push_back(&queue);
}

void CommandGraph::end_capture() noexcept {
  if (in_bad_fork()) return;  // the queues are the parent's
  for (;;) {
    Queue* queue = nullptr;
    {
      MutexLock lock(mutex_);
      if (queues_.empty()) {
        open_ = false;
        return;
      }
      queue = queues_.back();
      queues_.pop_back();
    }
    queue->detach();
  }
}

void CommandGraph::invalidate(std::string reason) noexcept {
  if (in_bad_fork()) return;
  MutexLock lock(mutex_);
  if (invalid_reason_.empty()) invalid_reason_ = std::move(reason);
}

std::string CommandGraph::invalid_reason() const {
  MutexLock lock(mutex_);
  return invalid_reason_;
}

void CommandGraph::run() noexcept {
  Queue& queue = *Queue::current();
  std::size_t number = 0;
  commands_.for_each([&](const Command& command) {
    const auto stack = stacks_.find(++number);
    const Queue::GraphPlace place{number, size_, stack == stacks_.end() ? nullptr : &stack->second};
    // The one look at the process's state tells of its end and of a trace.
    const detail::ProcessState state = detail::process_state();
    if (state == detail::ProcessState::kExiting) [[unlikely]] {
      return;
    }
    CommandRecord* record = nullptr;
    if (state == detail::ProcessState::kTraced) [[unlikely]] {
      record = CommandTrace::instance().begin(command.name(), queue);
    }
    if (record != nullptr) {
      note_launched(*record);
      note_start(*record, command);
    }
    queue.run(command, &place);
    if (record != nullptr) note_end(*record);
  });
}

}  // namespace loom
