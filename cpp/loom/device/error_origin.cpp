// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/error_origin.h"

#include "loom/base/check.h"
#include "loom/base/options.h"
#include "loom/device/thread.h"

#include <atomic>
#include <utility>

namespace loom {
namespace {

// Relaxed: set before the device is used, which is ordered with the worker's start.
std::atomic<ErrorAnnotator> g_annotator{nullptr};

std::atomic<StackProvider> g_stack_provider{nullptr};

/// -1 until LOOM_ERROR_STACKS has been read. Relaxed: a setting, which orders nothing.
std::atomic<int> g_error_stacks{-1};

/// For an exception that no annotator knows.
AnnotatedError annotate_std_exception(const std::exception_ptr& error, const std::string& origin) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    std::string text = detail::concat(known.what(), " (", origin, ")");
    return {std::make_exception_ptr(Error(text)), text};
  } catch (...) {
    return {error, origin};
  }
}

}  // namespace

void set_error_annotator(ErrorAnnotator annotator) noexcept {
  g_annotator.store(annotator, std::memory_order_relaxed);
}

void set_stack_provider(StackProvider provider) noexcept {
  g_stack_provider.store(provider, std::memory_order_relaxed);
}

bool error_stacks() noexcept { return g_error_stacks.load(std::memory_order_relaxed) > 0; }

void set_error_stacks(bool on) {
  g_error_stacks.store(on ? 1 : 0, std::memory_order_relaxed);
  detail::set_observed(detail::Observer::kErrorStacks, on);
}

std::string detail::describe_origin(const std::string& name, std::uint64_t position,
                                    const QueueId& queue, const std::string& stack) {
  if (options().launch_blocking) return concat("raised by '", name, "'");
  std::string text =
      concat("asynchronous error: raised by '", name, "', command ", position, " of queue ",
             queue.device, ":", queue.priority, ":", queue.index, ", submitted earlier");
  if (!stack.empty()) return concat(text, " at\n", stack);
  return text +
         "; set LOOM_ERROR_STACKS=1 (torch.loom.set_error_stacks(True)) to be told where, "
         "or LOOM_LAUNCH_BLOCKING=1 to have it raised there";
}

AnnotatedError detail::annotate(const std::exception_ptr& error, const std::string& origin) {
  if (const ErrorAnnotator annotator = g_annotator.load(std::memory_order_relaxed)) {
    AnnotatedError annotated = annotator(error, origin);
    if (annotated.error != nullptr) return annotated;
  }
  return annotate_std_exception(error, origin);
}

std::string detail::submission_stack() {
  const StackProvider provider = g_stack_provider.load(std::memory_order_relaxed);
  if (!error_stacks() || provider == nullptr || on_loom_thread()) return {};
  return provider();
}

// What the program has set before the first queue stands.
void detail::read_error_stacks_option() {
  int unset = -1;
  if (g_error_stacks.compare_exchange_strong(unset, 0, std::memory_order_relaxed) &&
      options().error_stacks) {
    set_error_stacks(true);
  }
}

}  // namespace loom
