// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a submission does: the templates of Queue, which is where this is included from.
// Thread: as Queue::submit().

#include "loom/base/mutex.h"
#include "loom/device/awaited_command.h"
#include "loom/device/command_graph.h"
#include "loom/device/cores.h"
#include "loom/device/queue.h"
#include "loom/device/thread.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace loom {

template <class Callable>
void Queue::submit_and_wait(const char* name, Callable&& callable) {
  const auto awaited = std::make_shared<detail::Awaited>();
  await(
      enqueue(name, detail::AwaitedCommand<std::decay_t<Callable>>{std::forward<Callable>(callable),
                                                                   awaited}),
      *awaited);
}

template <class Callable>
std::uint64_t Queue::enqueue(const char* name, Callable&& callable, OpenCommand* open) {
  // The one look at the process's state also tells whether a trace or error stacks are on, so they
  // cost nothing where they are off. Relaxed: the recorder decides under its own lock; here a
  // change may be seen late, by commands that run beside start() or stop() anyway.
  CommandRecord* record = nullptr;
  bool observed = false;
  if (detail::process_state() != detail::ProcessState::kRunning) [[unlikely]] {
    if (!accepts_commands()) return submitted();
    record = begin_launch(name);
    observed = true;
  }
  if (submitted_.load(std::memory_order_relaxed) >= room_until_.load(std::memory_order_relaxed))
      [[unlikely]] {
    make_room();
  }
  std::uint64_t position;
  {
    MutexLock lock(submit_mutex_);
    try {
      if (!plain_) [[unlikely]] {
        if (graph_ != nullptr) {
          abandon_launch(record);
          if (open_.load(std::memory_order_relaxed) != nullptr) close_open();
          graph_->append(name, std::forward<Callable>(callable), take_stack());
          if (open != nullptr) open_.store(open, std::memory_order_relaxed);
          return submitted_.load(std::memory_order_relaxed);
        }
        start_worker();
      }
      if (open_.load(std::memory_order_relaxed) != nullptr) close_open();
      commands_.append(name, std::forward<Callable>(callable), record);
      if (open != nullptr) open_.store(open, std::memory_order_relaxed);
    } catch (...) {
      abandon_launch(record);
      throw;
    }
    cores_.note_submitter();
    position = submitted_.load(std::memory_order_relaxed) + 1;
    if (observed) [[unlikely]] {
      note_stack(position);
    }
    submitted_.store(position, std::memory_order_seq_cst);
  }
  if (worker_state_.load(std::memory_order_seq_cst) == kSleeping) [[unlikely]] {
    wake_worker();
  }
  if (record != nullptr) [[unlikely]] {
    end_launch(*record);
  }
  return position;
}

}  // namespace loom
