// SPDX-License-Identifier: BSD-3-Clause
// What torch.profiler finds loom by: registered with Kineto when the library is loaded, asked for a
// session by every profile, and giving one to those that want device activities.
#include "loom/backend/library.h"
#include "loom/device/command_trace.h"
#include "loom/profiler/legacy_stubs.h"
#include "loom/profiler/session.h"

#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <Config.h>
#include <IActivityProfiler.h>
#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <string>

namespace loom::profiler {
namespace {

using libkineto::ActivityType;

class ActivityProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return activities_; }

  /// Null, so that nothing is recorded, for profiles of the CPU alone. Those too ask for launches.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config& config) override {
    const bool of_device = std::any_of(types.begin(), types.end(), [](ActivityType type) {
      return type == ActivityType::CONCURRENT_KERNEL || type == ActivityType::GPU_MEMCPY ||
             type == ActivityType::GPU_MEMSET || type == ActivityType::GPU_USER_ANNOTATION;
    });
    if (!of_device) return nullptr;
    constexpr std::int64_t kLeastBytes = 1'048'576;
    const auto bytes =
        static_cast<std::size_t>(std::max(config.activitiesMaxGpuBufferSize(), kLeastBytes));
    return std::make_unique<Session>(types, bytes / sizeof(CommandRecord));
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      std::int64_t, std::int64_t, const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "loom";
  const std::set<ActivityType> activities_ = {
      ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
      ActivityType::GPU_USER_ANNOTATION, ActivityType::PRIVATEUSE1_RUNTIME};
};

bool register_profilers() noexcept {
  try {
    check_registered();
    const torch::profiler::impl::RegisterPrivateUse1Profiler<ActivityProfiler> with_kineto;
    register_legacy_stubs();
    return true;
  } catch (const std::exception&) {
    // Another backend has the process's place for one; using loom says so.
    return false;
  }
}

[[maybe_unused]] const bool registered_at_load = register_profilers();

}  // namespace
}  // namespace loom::profiler
