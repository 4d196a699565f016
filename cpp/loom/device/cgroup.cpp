// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace loom {
namespace {

/// A hierarchy of groups, and where the process is in it.
struct Hierarchy {
  bool unified = false;                  ///< version 2
  std::vector<std::string> controllers;  ///< of version 1
  std::string path;                      ///< of the process's group, from the hierarchy's root

  [[nodiscard]] bool has(std::string_view controller) const {
    return unified ||
           std::find(controllers.begin(), controllers.end(), controller) != controllers.end();
  }
};

/// A place where (a part of) a hierarchy can be seen.
struct Mount {
  std::string group;  ///< what is mounted: "/", in containers often the process's own group
  std::string point;  ///< where
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(std::move(part));
  return parts;
}

/// Lines of /proc/self/cgroup: hierarchy:controllers:path, with no controllers for version 2.
std::vector<Hierarchy> hierarchies(const std::string& root) {
  std::vector<Hierarchy> all;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    all.push_back({controllers.empty(), split(controllers, ','), line.substr(second + 1)});
  }
  return all;
}

/// Lines of /proc/self/mountinfo (proc(5)): "... <root> <mount point> ... - <type> <source>
/// <options>". Spaces in names are written as \040, which no system uses here.
std::optional<Mount> find_mount(const std::string& root, const Hierarchy& hierarchy,
                                const std::string& controller) {
  constexpr std::size_t kRoot = 3, kPoint = 4;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() <= static_cast<std::ptrdiff_t>(kPoint) || words.end() - dash < 4) {
      continue;
    }
    if (dash[1] != (hierarchy.unified ? "cgroup2" : "cgroup")) continue;
    if (!hierarchy.unified) {
      const std::vector<std::string> options = split(dash[3], ',');
      if (std::find(options.begin(), options.end(), controller) == options.end()) continue;
    }
    return Mount{words[kRoot], words[kPoint]};
  }
  return std::nullopt;
}

/// The path of the process's group below the mount; empty when it is not there, as for processes
/// that see their container's own group mounted.
std::string path_below(const Mount& mount, const std::string& path) {
  if (path.find("/..") != std::string::npos) return {};  // outside of the namespace's root
  if (mount.group == "/") return path == "/" ? std::string() : path;
  const bool below = path.starts_with(mount.group) &&
                     (path.size() == mount.group.size() || path[mount.group.size()] == '/');
  return below ? path.substr(mount.group.size()) : std::string();
}

/// Calls visit(folder, is_version_2) for the process's group for `controller` and all above it.
template <class Visit>
void for_each_group(const std::string& root, const std::string& controller, Visit visit) {
  for (const Hierarchy& hierarchy : hierarchies(root)) {
    if (!hierarchy.has(controller)) continue;
    const Mount mount =
        find_mount(root, hierarchy, controller)
            .value_or(
                Mount{"/", hierarchy.unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller});
    std::string path = path_below(mount, hierarchy.path);
    for (;;) {
      visit(root + mount.point + path, hierarchy.unified);
      if (path.empty()) break;
      path.erase(path.rfind('/'));
    }
  }
}

/// The first line of a file, or nothing.
std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

/// The whole number at the beginning of a text, if it begins with one: all that the system writes.
std::optional<double> leading_number(const std::optional<std::string>& text) {
  std::int64_t number = 0;
  if (!text) return std::nullopt;
  const auto result = std::from_chars(text->data(), text->data() + text->size(), number);
  if (result.ec != std::errc()) return std::nullopt;
  return static_cast<double>(number);
}

template <class Number>
void lower(std::optional<Number>& least, Number limit) {
  if (!least || limit < *least) least = limit;
}

std::optional<std::size_t> memory_limit(const std::string& folder, bool v2) {
  constexpr double kNone = 0x1p62;  // version 1 has a very large number, version 2 "max"
  const auto limit =
      leading_number(read_line(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")));
  if (!limit || *limit <= 0 || *limit >= kNone) return std::nullopt;
  return static_cast<std::size_t>(*limit);
}

/// Version 2 has "quota period" in one file, "max period" without a limit; version 1 a file each,
/// and -1.
std::optional<double> cpu_limit(const std::string& folder, bool v2) {
  constexpr double kUsualPeriod = 100'000;
  const auto line = read_line(folder + (v2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
  const auto quota = leading_number(line);
  if (!quota || *quota <= 0) return std::nullopt;
  const std::size_t space = v2 ? line->find(' ') : std::string::npos;
  const auto period =
      v2 ? leading_number(space == std::string::npos ? std::nullopt
                                                     : std::optional(line->substr(space + 1)))
         : leading_number(read_line(folder + "/cpu.cfs_period_us"));
  return *quota / period.value_or(kUsualPeriod);
}

}  // namespace

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits least;
  for_each_group(root, "memory", [&](const std::string& folder, bool v2) {
    if (const auto limit = memory_limit(folder, v2)) lower(least.memory, *limit);
  });
  for_each_group(root, "cpu", [&](const std::string& folder, bool v2) {
    if (const auto limit = cpu_limit(folder, v2)) lower(least.cpus, *limit);
  });
  return least;
}

}  // namespace loom
