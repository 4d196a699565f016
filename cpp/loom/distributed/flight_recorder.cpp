// SPDX-License-Identifier: BSD-3-Clause
#include "loom/distributed/flight_recorder.h"

#include "loom/base/futex.h"
#include "loom/base/process_state.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/env.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iterator>
#include <utility>

namespace loom::distributed {
namespace {

/// How many operations are kept, as many as NCCL's recorder keeps.
constexpr std::size_t kMost = 2000;
/// How late a failure may be noticed.
constexpr std::int64_t kLookNs = 50'000'000;

using Dict = c10::impl::GenericDict;
using List = c10::impl::GenericList;

Dict make_dict() { return Dict(c10::AnyType::get(), c10::AnyType::get()); }
List make_list() { return List(c10::AnyType::get()); }

bool is_asked_to_dump() {
  const std::optional<std::string> flag = c10::utils::get_env("TORCH_NCCL_DUMP_ON_TIMEOUT");
  if (flag) return *flag == "1" || *flag == "true" || *flag == "y" || *flag == "yes";
  return c10::utils::has_env("TORCH_FR_DUMP_TEMP_FILE") ||
         c10::utils::has_env("TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
}

/// What the analyser calls an operation. It knows no backends but PyTorch's own, so this one takes
/// the name of the one that is for accelerators of any make.
std::string title_of(const Recorded& operation, int rank) {
  struct Pair {
    const char *ours, *theirs;
  };
  static constexpr Pair kTitles[] = {
      {"all_gather_into_tensor", "_all_gather_base"},
      {"reduce_scatter_tensor", "_reduce_scatter_base"},
      {"all_to_all_single", "all_to_all"},
      {"all_gather_coalesced", "all_gather_into_tensor_coalesced"},
      {"recvAnySource", "recv"},
  };
  std::string title = operation.name;
  for (const auto& [ours, theirs] : kTitles) {
    if (title == ours) title = theirs;
  }
  if (operation.is_message) {
    const bool sends = title == "send";
    const int peer = operation.peer >= 0 ? operation.peer : operation.completion->source();
    title += " " + std::to_string(rank) + (sends ? "->" : "<-") + std::to_string(std::max(peer, 0));
  }
  return "xccl:" + title;
}

List sizes_of(const Recorded::Shapes& shapes) {
  List all = make_list();
  for (const Recorded::Shape& shape : shapes) {
    List sizes = make_list();
    for (const std::int64_t size : shape.sizes) sizes.push_back(size);
    all.push_back(sizes);
  }
  return all;
}

List dtypes_of(const Recorded::Shapes& shapes) {
  List all = make_list();
  for (const Recorded::Shape& shape : shapes) all.push_back(c10::toString(shape.dtype));
  return all;
}

std::string text_of(const std::vector<std::uint64_t>& ranks) {
  std::string text;
  for (const std::uint64_t rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "[" + text + "]";
}

/// To be added to a time of the steady clock for one of the wall's.
std::int64_t wall_offset_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count() -
         now_ns();
}

c10::IValue time_or_none(std::int64_t steady_ns, std::int64_t offset_ns) {
  return steady_ns == 0 ? c10::IValue() : c10::IValue(steady_ns + offset_ns);
}

Dict entry_of(const Recorded& operation, std::int64_t offset_ns) {
  const Completion& completion = *operation.completion;
  const Completion::State state = completion.state();
  const bool done = state == Completion::kDone;
  // Of one that is queued the times are still written.
  const std::int64_t started_ns = state == Completion::kQueued ? 0 : completion.start_ns();
  const std::int64_t ended_ns = done ? completion.end_ns() : 0;
  const std::string& description = operation.group->getGroupDesc();
  Dict entry = make_dict();
  entry.insert(c10d::record_id_key, static_cast<std::int64_t>(operation.id));
  entry.insert(c10d::pg_id_key, 0);
  entry.insert(c10d::pg_name_key,
               c10::ivalue::Tuple::create({operation.group->getGroupUid(), description}));
  entry.insert(c10d::collective_seq_id_key, static_cast<std::int64_t>(operation.collectives));
  entry.insert(c10d::p2p_seq_id_key, static_cast<std::int64_t>(operation.messages));
  entry.insert(c10d::op_id_key, static_cast<std::int64_t>(operation.number));
  entry.insert(c10d::profiling_name_key, title_of(operation, operation.group->getRank()));
  entry.insert(c10d::time_created_key, operation.called_ns + offset_ns);
  if (done) entry.insert(c10d::duration_key, static_cast<double>(ended_ns - started_ns) * 1e-6);
  entry.insert(c10d::input_sizes_key, sizes_of(operation.inputs));
  entry.insert(c10d::input_dtypes_key, dtypes_of(operation.inputs));
  entry.insert(c10d::output_sizes_key, sizes_of(operation.outputs));
  entry.insert(c10d::output_dtypes_key, dtypes_of(operation.outputs));
  entry.insert(c10d::state_key, done              ? c10d::completed_state
                                : started_ns != 0 ? c10d::started_state
                                                  : c10d::scheduled_state);
  entry.insert(c10d::time_discovered_started_key, time_or_none(started_ns, offset_ns));
  entry.insert(c10d::time_discovered_completed_key, time_or_none(ended_ns, offset_ns));
  entry.insert(c10d::retired_key, done);
  entry.insert(c10d::timeout_key, operation.timeout_ns / 1'000'000);
  entry.insert(c10d::is_p2p_key, operation.is_message);
  return entry;
}

}  // namespace

Recorded::Shapes Recorded::shapes_of(const std::vector<at::Tensor>& tensors) {
  Shapes shapes;
  shapes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    shapes.push_back({at::DimVector(tensor.sizes()), tensor.scalar_type()});
  }
  return shapes;
}

FlightRecorder& FlightRecorder::instance() {
  static auto* const recorder = new FlightRecorder;
  return *recorder;
}

FlightRecorder::FlightRecorder() : dumps_failures_(is_asked_to_dump()) {}

void FlightRecorder::join(const c10d::Backend& group, const Engine& engine,
                          std::vector<std::uint64_t> ranks) {
  for (std::uint64_t rank = ranks.size(); rank < static_cast<std::uint64_t>(group.getSize());) {
    ranks.push_back(rank++);  // the default group may say none
  }
  MutexLock lock(mutex_);
  groups_.push_back({&group, &engine, std::move(ranks)});
  if (!dumps_failures_ || thread_) return;
  const auto body = [this] {
    while (stopped_ == 0) {
      futex_wait_for(stopped_, 0, kLookNs);
      look();
    }
  };
  thread_.emplace("loom-lccl-look", std::vector<int>{}, body, [this] {
    stopped_ = 1;
    futex_wake(stopped_);
  });
}

void FlightRecorder::leave(const c10d::Backend& group) {
  look();
  MutexLock lock(mutex_);
  std::erase_if(groups_, [&](const Group& each) { return each.backend == &group; });
  std::erase_if(operations_, [&](const Recorded& each) { return each.group == &group; });
}

void FlightRecorder::record(const c10d::Backend& group, Recorded operation) {
  operation.group = &group;
  operation.called_ns = now_ns();
  MutexLock lock(mutex_);
  operation.id = next_++;
  if (operations_.size() == kMost) operations_.pop_front();
  operations_.push_back(std::move(operation));
}

std::vector<Recorded> FlightRecorder::operations_of(const c10d::Backend& group) const {
  std::vector<Recorded> found;
  MutexLock lock(mutex_);
  std::copy_if(operations_.begin(), operations_.end(), std::back_inserter(found),
               [&](const Recorded& each) { return each.group == &group; });
  return found;
}

bool FlightRecorder::has_failed(const c10d::Backend& group) const {
  MutexLock lock(mutex_);
  return std::any_of(operations_.begin(), operations_.end(), [&](const Recorded& each) {
    return each.group == &group && each.completion->state() == Completion::kFailed;
  });
}

void FlightRecorder::look() noexcept {
  if (!dumps_failures_ || in_bad_fork()) return;
  try {
    dump_failed();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lccl: cannot dump what this rank has called: %s\n", error.what());
  }
}

void FlightRecorder::dump_failed() {
  MutexLock write_lock(write_mutex_);
  std::string trace;
  int rank = 0;
  {
    MutexLock lock(mutex_);
    const auto failed = [](const Group& group) {
      return !group.told && !group.engine->reason().empty();
    };
    const auto first = std::find_if(groups_.begin(), groups_.end(), failed);
    if (first == groups_.end()) return;
    for (auto group = first; group != groups_.end(); ++group) group->told |= failed(*group);
    rank = static_cast<int>(first->ranks[static_cast<std::size_t>(first->backend->getRank())]);
    trace = dump_locked();
  }
  // To the file that TORCH_FR_DUMP_TEMP_FILE names, with the rank behind it, or to whatever the
  // program has registered.
  c10d::DebugInfoWriter::getWriter(rank).write(trace);
}

std::string FlightRecorder::dump() const {
  MutexLock lock(mutex_);
  return dump_locked();
}

std::string FlightRecorder::dump_locked() const {
  Dict groups = make_dict();
  for (const Group& group : groups_) {
    Dict of_group = make_dict();
    of_group.insert("name", group.backend->getGroupUid());
    of_group.insert("desc", group.backend->getGroupDesc());
    of_group.insert("ranks", text_of(group.ranks));
    groups.insert(group.backend->getGroupUid(), of_group);
  }
  List entries = make_list();
  const std::int64_t offset_ns = wall_offset_ns();
  for (const Recorded& operation : operations_) entries.push_back(entry_of(operation, offset_ns));
  Dict all = make_dict();
  all.insert(c10d::version_key, c10d::version_val);
  all.insert(c10d::comm_lib_version_key, "lccl");
  all.insert(c10d::pg_config_key, groups);
  all.insert(c10d::pg_status_key, make_dict());
  all.insert(c10d::entries_key, entries);
  const std::vector<char> bytes = torch::jit::pickle(all);
  return {bytes.begin(), bytes.end()};
}

}  // namespace loom::distributed
