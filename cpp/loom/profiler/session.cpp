// SPDX-License-Identifier: BSD-3-Clause
#include "loom/profiler/session.h"

#include "loom/profiler/activities.h"
#include "loom/profiler/launch_context.h"

#include <c10/util/Exception.h>

#include <ThreadUtil.h>
#include <atomic>
#include <exception>
#include <output_base.h>
#include <utility>

namespace loom::profiler {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

libkineto::DeviceInfo device_info(int device) {
  return {device, device + libkineto::kExceedMaxPid, libkineto::processName(libkineto::processId()),
          "loom " + std::to_string(device)};
}

}  // namespace

Session::Session(std::set<libkineto::ActivityType> types, std::size_t capacity)
    : number_(next_number()), types_(std::move(types)), capacity_(capacity) {}

Session::~Session() {
  if (!recording_) return;
  try {
    (void)CommandTrace::instance().stop();
  } catch (const std::exception&) {
    recording_ = false;  // nobody is left to be told; the trace is off
  }
}

void Session::start() {
  began_ = ended_ = ClockMap::read();
  recording_ = true;
  status_ = libkineto::TraceStatus::RECORDING;
  CommandTrace::instance().start(capacity_);
}

void Session::stop() {
  if (!recording_) return;
  recording_ = false;
  status_ = libkineto::TraceStatus::PROCESSING;
  result_ = CommandTrace::instance().stop();
  ended_ = ClockMap::read();
  for (const std::string& error : errors()) TORCH_WARN(error);
}

std::vector<std::string> Session::errors() {
  std::vector<std::string> found;
  if (result_.dropped > 0) {
    found.push_back("loom: the profiler had room for " + std::to_string(capacity_) +
                    " commands; the last " + std::to_string(result_.dropped) +
                    " are missing. Profile fewer steps, or raise Kineto's "
                    "ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB.");
  }
  return found;
}

void Session::processTrace(libkineto::ActivityLogger& logger) {
  processTrace(
      logger, [](std::int32_t) -> const libkineto::ITraceActivity* { return nullptr; }, 0, 0);
}

// What was launched in the window is shown even where it ended after it: on streams that the end of
// the profile did not wait for.
void Session::processTrace(libkineto::ActivityLogger& logger,
                           libkineto::getLinkedActivityCallback linked, std::int64_t,
                           std::int64_t) {
  buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
  buffer_->span = libkineto::TraceSpan(began_.unix_ns, ended_.unix_ns, "loom");
  buffer_->gpuOpCount = 0;
  ActivityWriter writer(*buffer_, types_, ClockMap(began_, ended_), std::move(linked));
  writer.write(result_.spans, number_);
  rows_ = writer.rows();
  devices_ = writer.devices();
  buffer_->span.opCount = static_cast<int>(buffer_->activities.size());
  for (const auto& activity : buffer_->activities) activity->log(logger);
  // getDeviceInfo() has room for one.
  for (auto device = devices_.begin(); device != devices_.end(); ++device) {
    if (device != devices_.begin()) logger.handleDeviceInfo(device_info(*device), began_.unix_ns);
  }
  result_.spans = {};
}

std::unique_ptr<libkineto::DeviceInfo> Session::getDeviceInfo() {
  if (devices_.empty()) return nullptr;
  return std::make_unique<libkineto::DeviceInfo>(device_info(*devices_.begin()));
}

std::vector<libkineto::ResourceInfo> Session::getResourceInfos() { return rows_; }

std::unique_ptr<libkineto::CpuTraceBuffer> Session::getTraceBuffer() { return std::move(buffer_); }

std::unordered_map<std::string, std::string> Session::getMetadata() {
  std::unordered_map<std::string, std::string> metadata;
  if (result_.dropped > 0) metadata["loom_dropped_commands"] = std::to_string(result_.dropped);
  if (result_.unfinished > 0) {
    metadata["loom_unfinished_commands"] = std::to_string(result_.unfinished);
  }
  return metadata;
}

void Session::pushCorrelationId(std::uint64_t id) {
  enter_context(number_, ContextKind::kOperation, id);
}
void Session::popCorrelationId() { leave_context(number_, ContextKind::kOperation); }
void Session::pushUserCorrelationId(std::uint64_t id) {
  enter_context(number_, ContextKind::kAnnotation, id);
}
void Session::popUserCorrelationId() { leave_context(number_, ContextKind::kAnnotation); }

}  // namespace loom::profiler
