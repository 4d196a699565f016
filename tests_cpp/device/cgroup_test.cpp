// SPDX-License-Identifier: BSD-3-Clause
#include "loom/device/cgroup.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace loom {
namespace {

/// A folder with what the system says of a process and its groups.
class CgroupTest : public ::testing::Test {
 protected:
  CgroupTest() {
    std::string name = (std::filesystem::temp_directory_path() / "cgroup_XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~CgroupTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file(root_ + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  void mount_v2(const std::string& group = "/", const std::string& point = "/sys/fs/cgroup") const {
    write("/proc/self/mountinfo",
          "23 27 0:22 / /sys rw,relatime - sysfs sysfs rw\n"
          "31 23 0:28 " +
              group + " " + point + " rw shared:4 - cgroup2 cgroup2 rw,nsdelegate");
  }
  [[nodiscard]] CgroupLimits limits() const { return read_cgroup_limits(root_); }

  std::string root_;
};

constexpr std::size_t kGiB = std::size_t{1} << 30;

TEST_F(CgroupTest, NothingSaidIsNoLimit) {
  EXPECT_FALSE(limits().memory.has_value());
  EXPECT_FALSE(limits().cpus.has_value());
  write("/proc/self/cgroup", "0::/");
  mount_v2();
  write("/sys/fs/cgroup/memory.max", "max");
  write("/sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_FALSE(limits().memory.has_value());
  EXPECT_FALSE(limits().cpus.has_value());
}

TEST_F(CgroupTest, TheLeastLimitOnTheWholePathHolds) {
  write("/proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/task_0");
  mount_v2();
  const std::string job = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
  write(job + "/memory.max", std::to_string(4 * kGiB));
  write(job + "/step_0/memory.max", "max");
  write(job + "/step_0/task_0/memory.max", std::to_string(9 * kGiB));
  write("/sys/fs/cgroup/system.slice/memory.max", std::to_string(30 * kGiB));
  write(job + "/cpu.max", "max 100000");
  write("/sys/fs/cgroup/system.slice/cpu.max", "150000 50000");
  write(job + "/step_0/cpu.max", "400000 100000");
  EXPECT_EQ(limits().memory, 4 * kGiB);
  EXPECT_EQ(limits().cpus, 3.0);
}

TEST_F(CgroupTest, GroupsBesideThePathDoNotMatter) {
  write("/proc/self/cgroup", "0::/a/b");
  mount_v2();
  write("/sys/fs/cgroup/a/c/memory.max", "1000000");
  write("/sys/fs/cgroup/a/b/below/memory.max", "1000000");
  write("/sys/fs/cgroup/a/memory.max", "5000000");
  EXPECT_EQ(limits().memory, 5'000'000U);
}

TEST_F(CgroupTest, VersionOneHasAHierarchyForEachController) {
  constexpr const char* kNone = "9223372036854771712";
  write("/proc/self/cgroup",
        "11:cpu,cpuacct:/slurm/uid_1/job_7\n4:memory:/slurm/uid_1/job_7/step_0\n0::/elsewhere");
  write("/proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /mnt/memory rw,relatime shared:2 - cgroup cgroup rw,memory");
  write("/mnt/memory/slurm/uid_1/job_7/step_0/memory.limit_in_bytes", kNone);
  write("/mnt/memory/slurm/uid_1/job_7/memory.limit_in_bytes", std::to_string(2 * kGiB));
  write("/mnt/memory/memory.limit_in_bytes", kNone);
  write("/sys/fs/cgroup/cpu,cpuacct/slurm/uid_1/job_7/cpu.cfs_quota_us", "-1");
  write("/sys/fs/cgroup/cpu,cpuacct/slurm/uid_1/job_7/cpu.cfs_period_us", "100000");
  write("/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "50000");
  write("/sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "20000");
  EXPECT_EQ(limits().memory, 2 * kGiB);
  EXPECT_EQ(limits().cpus, 2.5);
}

TEST_F(CgroupTest, AContainerSeesItsOwnGroupMounted) {
  write("/proc/self/cgroup", "0::/docker/4f/inner/leaf");
  mount_v2("/docker/4f");
  write("/sys/fs/cgroup/memory.max", std::to_string(8 * kGiB));
  write("/sys/fs/cgroup/inner/memory.max", std::to_string(3 * kGiB));
  EXPECT_EQ(limits().memory, 3 * kGiB);
}

TEST_F(CgroupTest, AGroupThatIsNotToBeSeenLeavesTheMount) {
  mount_v2("/docker/4f");
  write("/sys/fs/cgroup/memory.max", std::to_string(8 * kGiB));
  for (const char* path : {"0::/docker/4f7/other", "0::/../..", "0::/"}) {
    write("/proc/self/cgroup", path);
    EXPECT_EQ(limits().memory, 8 * kGiB) << path;
  }
}

TEST_F(CgroupTest, WithoutAListOfMountsTheUsualPlacesAreReadAndWhatIsNoNumberIsIgnored) {
  write("/proc/self/cgroup", "nonsense\n3:memory:/a\n2:cpu:/a");
  write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000000");
  write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "many");
  EXPECT_EQ(limits().memory, 7'000'000U);
  EXPECT_FALSE(limits().cpus.has_value());
}

}  // namespace
}  // namespace loom
