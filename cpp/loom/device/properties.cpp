// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/properties.h"

#include "loom/base/check.h"
#include "loom/device/cgroup.h"
#include "loom/device/cpu_set.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <dlfcn.h>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <sys/sysinfo.h>
#include <utility>

namespace loom {
namespace {

constexpr const char* kCpuFolder = "/sys/devices/system/cpu/cpu";
constexpr const char* kNodeFolder = "/sys/devices/system/node/";

/// The first line of a file of the system, or nothing.
std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with("model name")) continue;
    if (std::string name = trimmed(std::string_view(line).substr(colon + 1)); !name.empty()) {
      return name;
    }
  }
  return "CPU";
}

/// The processors of OpenMP's places, if the process has an OpenMP runtime that has bound the
/// calling thread to one of them, else none. Asked to bind threads (OMP_PROC_BIND), it has bound
/// the first one long before loom is used, so that this thread's own mask says nothing of the
/// process. A mask that is not the place's is somebody else's wish, set later, and holds.
CpuSet openmp_places(const CpuSet& own) {
  const auto find = []<class Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  };
  int (*num_places)() = nullptr;
  int (*place_num)() = nullptr;
  int (*num_procs)(int) = nullptr;
  void (*proc_ids)(int, int*) = nullptr;
  if (!find("omp_get_num_places", num_places) || !find("omp_get_place_num", place_num) ||
      !find("omp_get_place_num_procs", num_procs) || !find("omp_get_place_proc_ids", proc_ids)) {
    return {};
  }
  const auto cpus_of = [&](int place) {
    std::vector<int> ids(static_cast<std::size_t>(num_procs(place)));
    proc_ids(place, ids.data());
    return ids;
  };
  const int bound_to = place_num();
  if (bound_to < 0 || bound_to >= num_places() || !(CpuSet(cpus_of(bound_to)) == own)) return {};
  CpuSet all;
  for (int place = 0; place < num_places(); ++place) {
    for (const int cpu : cpus_of(place)) all.insert(cpu);
  }
  return all;
}

/// The processors that this process may use, in order.
std::vector<int> allowed_cpus() {
  const CpuSet own = CpuSet::of_this_thread().value_or(CpuSet({0}));
  std::vector<int> cpus = openmp_places(own).cpus();
  return cpus.empty() ? own.cpus() : cpus;
}

/// Parses the system's lists of numbers, such as "0-3,8,10-11".
std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto parse = [&](int& number) {
    const auto [next, error] = std::from_chars(at, end, number);
    at = next;
    return error == std::errc();
  };
  for (int first = 0; at < end && parse(first);) {
    int last = first;
    if (at < end && *at == '-') {
      ++at;
      if (!parse(last)) break;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at < end) ++at;  // the comma
  }
  return cpus;
}

/// The NUMA nodes that have processors of `allowed`, with those processors.
std::vector<std::pair<int, std::vector<int>>> numa_nodes(const std::vector<int>& allowed) {
  std::vector<std::pair<int, std::vector<int>>> nodes;
  for (const int node :
       parse_cpu_list(read_line(std::string(kNodeFolder) + "online").value_or(""))) {
    const std::string path = std::string(kNodeFolder) + "node" + std::to_string(node) + "/cpulist";
    std::vector<int> cpus;
    for (const int cpu : parse_cpu_list(read_line(path).value_or(""))) {
      if (std::binary_search(allowed.begin(), allowed.end(), cpu)) cpus.push_back(cpu);
    }
    if (!cpus.empty()) nodes.emplace_back(node, std::move(cpus));
  }
  if (nodes.empty()) nodes.emplace_back(-1, allowed);
  return nodes;
}

/// Cores behind the processors: hardware threads of one core count once.
int count_cores(const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string number = std::to_string(cpu);
    cores.insert(
        read_line(kCpuFolder + number + "/topology/thread_siblings_list").value_or(number));
  }
  return static_cast<int>(cores.size());
}

/// Parses sizes such as "32K" or "8M".
std::size_t parse_cache_size(std::string_view text) {
  std::size_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc()) return 0;
  const char unit = end < text.data() + text.size() ? *end : ' ';
  return size << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}

void read_caches(int cpu, DeviceProperties& properties) {
  const std::string folder = std::string(kCpuFolder) + std::to_string(cpu) + "/cache/index";
  for (int index = 0;; ++index) {
    const std::string cache = folder + std::to_string(index);
    const std::optional<std::string> level = read_line(cache + "/level");
    if (!level) return;
    if (read_line(cache + "/type").value_or("") == "Instruction") continue;
    const std::size_t size = parse_cache_size(read_line(cache + "/size").value_or(""));
    if (*level == "1") properties.l1_cache = size;
    if (*level == "2") properties.l2_cache = size;
    if (*level == "3") properties.l3_cache = size;
  }
}

/// The memory that the process may use: the host's, or less if its cgroups say so.
std::size_t usable_memory(const CgroupLimits& limits) {
  struct sysinfo info = {};
  std::size_t memory = std::size_t{1} << 30;
  if (sysinfo(&info) == 0) memory = static_cast<std::size_t>(info.totalram) * info.mem_unit;
  return std::min(memory, limits.memory.value_or(memory));
}

/// Device `index` of `count` gets the processors that are its even share, or one in turn.
std::vector<int> share_of(const std::vector<int>& cpus, int index, int count) {
  const int total = static_cast<int>(cpus.size());
  if (total < count) return {cpus[static_cast<std::size_t>(index % total)]};
  const auto begin = static_cast<std::ptrdiff_t>(index) * total / count;
  const auto end = static_cast<std::ptrdiff_t>(index + 1) * total / count;
  return {cpus.begin() + begin, cpus.begin() + end};
}

}  // namespace

std::vector<DeviceProperties> enumerate_devices(int count, int threads, std::size_t memory_limit) {
  LOOM_CHECK(count >= 0 && count <= kMaxDevices, "LOOM_DEVICES: expected 1 to ", kMaxDevices,
             " devices, got ", count);
  const std::vector<int> allowed = allowed_cpus();
  auto nodes = numa_nodes(allowed);
  nodes.resize(std::min<std::size_t>(nodes.size(), kMaxDevices));
  const bool by_node = count == 0 || count == static_cast<int>(nodes.size());
  if (count == 0) count = static_cast<int>(nodes.size());

  const CgroupLimits limits = read_cgroup_limits();
  DeviceProperties common;
  common.name = model_name();
  common.simd = vectors_of(simd_level());
  // A quarter is left to the host's own side of the program.
  const std::size_t fair_share = usable_memory(limits) / 4 * 3 / static_cast<std::size_t>(count);
  common.total_memory = memory_limit != 0 ? memory_limit : fair_share;

  std::vector<DeviceProperties> devices(static_cast<std::size_t>(count), common);
  for (int index = 0; index < count; ++index) {
    DeviceProperties& device = devices[static_cast<std::size_t>(index)];
    device.numa_node = by_node ? nodes[static_cast<std::size_t>(index)].first : -1;
    device.cpus =
        by_node ? nodes[static_cast<std::size_t>(index)].second : share_of(allowed, index, count);
    device.core_count = threads != 0 ? threads : count_cores(device.cpus);
    if (threads == 0 && limits.cpus) {
      const int granted = static_cast<int>(std::ceil(*limits.cpus / count));
      device.core_count = std::clamp(granted, 1, device.core_count);
    }
    read_caches(device.cpus.front(), device);
  }
  return devices;
}

}  // namespace loom
