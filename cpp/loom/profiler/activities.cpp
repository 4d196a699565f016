// SPDX-License-Identifier: BSD-3-Clause
#include "loom/profiler/activities.h"

#include "loom/backend/stream.h"
#include "loom/device/command_graph.h"
#include "loom/device/device.h"

#include <c10/util/Exception.h>

#include <ThreadUtil.h>
#include <algorithm>
#include <libkineto.h>
#include <string>
#include <string_view>
#include <utility>

namespace loom::profiler {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using libkineto::ITraceActivity;

// Launches are numbered from here. PyTorch numbers its operators from 1 in the same space of 31
// bits, and takes an activity without a link whose number is an operator's for that operator.
constexpr std::int32_t kFirstLaunch = 0x4000'0000;

Queue& find_queue(const QueueId& id) {
  Device& owner = device(id.device);
  if (id.index == 0) return owner.default_queue();
  if (id.index >= Device::kFirstLentIndex)
    return owner.lent_queue(id.index - Device::kFirstLentIndex);
  return owner.pool_queue(id.priority, id.index - 1);
}

std::size_t bytes_moved(const CommandSpan& span) {
  return std::max(span.bytes_read, span.bytes_written);
}

/// What profiles of other devices call it, which is what tools look for.
std::string display_name(const CommandSpan& span, ActivityType type) {
  if (type == ActivityType::GPU_MEMSET) return "Memset (Device)";
  if (type != ActivityType::GPU_MEMCPY) return span.name;
  if (span.bytes_read == 0) return "Memcpy HtoD (Host -> Device)";
  if (span.bytes_written == 0) return "Memcpy DtoH (Device -> Host)";
  return "Memcpy DtoD (Device -> Device)";
}

std::string row_name(const QueueId& queue, std::int32_t stream) {
  std::string name = "stream " + std::to_string(stream);
  if (queue.index == 0) return name + " (default)";
  return queue.priority < 0 ? name + " (high priority)" : name;
}

}  // namespace

ActivityType activity_type(const CommandSpan& span) noexcept {
  const std::string_view name = span.name;
  if (name == "copy_" || name == "copy") return ActivityType::GPU_MEMCPY;
  if (name == "zero_") return ActivityType::GPU_MEMSET;
  return ActivityType::CONCURRENT_KERNEL;
}

// The commands of a graph have rows of their own.
bool is_work(const CommandSpan& span) noexcept {
  const std::string_view name = span.name;
  return name != "wait_for" && name != "record_event" && name != kReplayName;
}

ActivityWriter::ActivityWriter(libkineto::CpuTraceBuffer& buffer, std::set<ActivityType> types,
                               ClockMap clock, libkineto::getLinkedActivityCallback linked)
    : buffer_(buffer), types_(std::move(types)), clock_(clock), linked_(std::move(linked)) {}

void ActivityWriter::write(const std::vector<CommandSpan>& spans, std::uint64_t session) {
  std::int32_t id = kFirstLaunch;
  for (const CommandSpan& span : spans) {
    if (!is_work(span)) continue;
    ++id;
    const bool known = span.context.session == session && span.context.operation != 0;
    const ITraceActivity* const operation =
        known ? linked_(static_cast<std::int32_t>(span.context.operation)) : nullptr;
    add_work(span, id, operation);
    add_launch(span, id, operation);
    if (span.context.session == session) extend_annotation(span);
  }
  add_annotations();
}

ActivityWriter::Row ActivityWriter::row_of(const QueueId& queue) {
  const Row row{queue.device, static_cast<std::int32_t>(stream_of(find_queue(queue)).id())};
  rows_.emplace(row, queue);
  return row;
}

GenericTraceActivity& ActivityWriter::add(ActivityType type, const std::string& name,
                                          std::int64_t begin_ns, std::int64_t end_ns) {
  buffer_.emplace_activity(buffer_.span, type, name);
  GenericTraceActivity& activity = *buffer_.activities.back();
  activity.startTime = begin_ns;
  activity.endTime = end_ns;
  return activity;
}

void ActivityWriter::add_work(const CommandSpan& span, std::int32_t id,
                              const ITraceActivity* operation) {
  const ActivityType type = activity_type(span);
  if (!types_.contains(type)) return;
  const Row row = row_of(span.queue);
  const std::int64_t begin_ns = clock_.unix_ns(span.started_ns);
  const std::int64_t end_ns = clock_.unix_ns(span.ended_ns);
  GenericTraceActivity& activity = add(type, display_name(span, type), begin_ns, end_ns);
  activity.id = id;
  activity.device = row.first;
  activity.resource = row.second;
  activity.linked = operation;
  activity.flow.id = static_cast<std::uint32_t>(id);
  activity.flow.type = libkineto::kLinkAsyncCpuGpu;
  activity.addMetadata("device", row.first);
  activity.addMetadata("stream", row.second);
  activity.addMetadata("correlation", id);
  activity.addMetadata("priority", span.queue.priority);
  if (type == ActivityType::CONCURRENT_KERNEL) {
    activity.addMetadata("bytes read", span.bytes_read);
    activity.addMetadata("bytes written", span.bytes_written);
    return;
  }
  const std::size_t bytes = bytes_moved(span);
  activity.addMetadata("bytes", bytes);
  if (end_ns > begin_ns) {  // bytes per nanosecond
    activity.addMetadata("memory bandwidth (GB/s)",
                         static_cast<double>(bytes) / static_cast<double>(end_ns - begin_ns));
  }
}

void ActivityWriter::add_launch(const CommandSpan& span, std::int32_t id,
                                const ITraceActivity* operation) {
  if (!types_.contains(ActivityType::PRIVATEUSE1_RUNTIME)) return;
  const std::int64_t begin_ns = clock_.unix_ns(span.launch_begin_ns);
  const std::int64_t end_ns =
      span.launch_end_ns == 0 ? begin_ns : clock_.unix_ns(span.launch_end_ns);
  GenericTraceActivity& activity =
      add(ActivityType::PRIVATEUSE1_RUNTIME, "loomLaunch", begin_ns, end_ns);
  activity.id = id;
  activity.device = libkineto::processId();
  activity.resource = span.thread;
  activity.threadId = span.thread;
  activity.linked = operation;
  activity.flow.id = static_cast<std::uint32_t>(id);
  activity.flow.type = libkineto::kLinkAsyncCpuGpu;
  activity.flow.start = 1;
  activity.addMetadataQuoted("kernel", span.name);
  activity.addMetadata("correlation", id);
}

void ActivityWriter::extend_annotation(const CommandSpan& span) {
  if (span.context.annotation == 0) return;
  const std::int64_t begin_ns = clock_.unix_ns(span.started_ns);
  const std::int64_t end_ns = clock_.unix_ns(span.ended_ns);
  const auto [found, inserted] = annotations_.try_emplace(
      {row_of(span.queue), span.context.annotation}, Range{begin_ns, end_ns});
  Range& range = found->second;
  range.begin_ns = std::min(range.begin_ns, begin_ns);
  range.end_ns = std::max(range.end_ns, end_ns);
}

void ActivityWriter::add_annotations() {
  if (!types_.contains(ActivityType::GPU_USER_ANNOTATION)) return;
  for (const auto& [key, range] : annotations_) {
    const auto& [row, number] = key;
    const ITraceActivity* const entered = linked_(static_cast<std::int32_t>(number));
    if (entered == nullptr) continue;
    GenericTraceActivity& activity =
        add(ActivityType::GPU_USER_ANNOTATION, entered->name(), range.begin_ns, range.end_ns);
    activity.id = static_cast<std::int32_t>(number);
    activity.device = row.first;
    activity.resource = row.second;
  }
}

std::vector<libkineto::ResourceInfo> ActivityWriter::rows() const {
  std::vector<libkineto::ResourceInfo> rows;
  for (const auto& [row, queue] : rows_) {
    const auto [device, stream] = row;
    rows.push_back({stream, stream, device, row_name(queue, stream)});
  }
  return rows;
}

std::set<int> ActivityWriter::devices() const {
  std::set<int> devices;
  for (const auto& [row, queue] : rows_) devices.insert(row.first);
  return devices;
}

}  // namespace loom::profiler
