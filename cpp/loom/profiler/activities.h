// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Turns the device's command spans into Kineto's activities: a kernel or a copy on the row of its
// stream, the launch on the row of its thread, an arrow between them, and for each
// record_function() range the span of what it launched on each stream. Thread: one.

#include "loom/device/command_trace.h"
#include "loom/profiler/clock_map.h"

#include <ActivityType.h>
#include <GenericTraceActivity.h>
#include <IActivityProfiler.h>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace libkineto {
struct CpuTraceBuffer;
}

namespace loom::profiler {

/// What a command looks like in a profile.
[[nodiscard]] libkineto::ActivityType activity_type(const CommandSpan& span) noexcept;

/// False for commands that only order others: waiting and noting the time are no work.
[[nodiscard]] bool is_work(const CommandSpan& span) noexcept;

class ActivityWriter {
 public:
  /// `linked` finds the CPU activity of an operator or range by PyTorch's number for it.
  ActivityWriter(libkineto::CpuTraceBuffer& buffer, std::set<libkineto::ActivityType> types,
                 ClockMap clock, libkineto::getLinkedActivityCallback linked);

  /// Adds what `spans` show, as far as the session that entered their contexts is `session`.
  void write(const std::vector<CommandSpan>& spans, std::uint64_t session);

  /// The streams that were seen, as trace rows of their devices.
  [[nodiscard]] std::vector<libkineto::ResourceInfo> rows() const;
  /// The devices that were seen.
  [[nodiscard]] std::set<int> devices() const;

 private:
  using Row = std::pair<int, std::int32_t>;  // device, stream id
  struct Range {
    std::int64_t begin_ns;
    std::int64_t end_ns;
  };

  [[nodiscard]] Row row_of(const QueueId& queue);
  libkineto::GenericTraceActivity& add(libkineto::ActivityType type, const std::string& name,
                                       std::int64_t begin_ns, std::int64_t end_ns);
  void add_work(const CommandSpan& span, std::int32_t id,
                const libkineto::ITraceActivity* operation);
  void add_launch(const CommandSpan& span, std::int32_t id,
                  const libkineto::ITraceActivity* operation);
  void extend_annotation(const CommandSpan& span);
  void add_annotations();

  libkineto::CpuTraceBuffer& buffer_;
  const std::set<libkineto::ActivityType> types_;
  const ClockMap clock_;
  const libkineto::getLinkedActivityCallback linked_;
  std::map<Row, QueueId> rows_;
  std::map<std::pair<Row, std::uint64_t>, Range> annotations_;
};

}  // namespace loom::profiler
