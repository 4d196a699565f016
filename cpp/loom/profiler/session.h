// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// One profile: Kineto starts it, tells it what each thread is in, stops it and takes the
// activities. Thread: Kineto starts, stops and processes under its own lock; contexts come from any
// thread.

#include "loom/device/command_trace.h"
#include "loom/profiler/clock_map.h"

#include <ActivityType.h>
#include <IActivityProfiler.h>
#include <cstddef>
#include <cstdint>
#include <libkineto.h>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace loom::profiler {

class Session final : public libkineto::IActivityProfilerSession {
 public:
  /// `capacity`: commands that are kept at most.
  Session(std::set<libkineto::ActivityType> types, std::size_t capacity);
  /// Ends the recording, if it was not.
  ~Session() override;

  void start() override;
  /// Waits for the commands that were recorded.
  void stop() override;
  std::vector<std::string> errors() override;

  void processTrace(libkineto::ActivityLogger& logger) override;
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    std::int64_t begin_ns, std::int64_t end_ns) override;
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override;
  std::vector<libkineto::ResourceInfo> getResourceInfos() override;
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override;
  std::unordered_map<std::string, std::string> getMetadata() override;

  void pushCorrelationId(std::uint64_t id) override;
  void popCorrelationId() override;
  void pushUserCorrelationId(std::uint64_t id) override;
  void popUserCorrelationId() override;

 private:
  const std::uint64_t number_;
  const std::set<libkineto::ActivityType> types_;
  const std::size_t capacity_;
  bool recording_ = false;
  ClockMap::Pair began_, ended_;
  CommandTrace::Result result_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::vector<libkineto::ResourceInfo> rows_;
  std::set<int> devices_;
};

}  // namespace loom::profiler
