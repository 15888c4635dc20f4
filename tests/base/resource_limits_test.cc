// Limits of control groups, read from files like the kernel's.
#include "common/base/resource_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tests/data/temp_dir.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

class ControlGroupTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((dir_ / path).parent_path());
    WriteBytes(dir_ / path, text);
  }
  ControlGroupLimits Read() { return ReadControlGroupLimits(dir_ / "membership", dir_ / "mount"); }

  TempDir dir_;
};

TEST_F(ControlGroupTest, NoneIsNoLimit) {
  const ControlGroupLimits limits = Read();
  EXPECT_EQ(limits.cores, ControlGroupLimits::kNone);
  EXPECT_EQ(limits.memory, ControlGroupLimits::kNone);
  EXPECT_EQ(limits.memory_left, ControlGroupLimits::kNone);
  EXPECT_EQ(limits.processes_left, ControlGroupLimits::kNone);
}

// A container's view of its own group.
TEST_F(ControlGroupTest, OfTheRoot) {
  Write("membership", "0::/\n");
  Write("mount/cpu.max", "150000 100000\n");
  Write("mount/memory.max", "1000\n");
  Write("mount/memory.current", "600\n");
  Write("mount/memory.stat", "anon 400\ninactive_file 50\n");
  const ControlGroupLimits limits = Read();
  EXPECT_EQ(limits.cores, 1.5);
  EXPECT_EQ(limits.memory, 1000);
  EXPECT_EQ(limits.memory_left, 450);
}

// As with systemd and batch systems, any level may set a limit, and the lowest applies.
TEST_F(ControlGroupTest, TheLeastFromTheProcessUpToTheRoot) {
  Write("membership", "12:cpu:/old\n0::/user.slice/job.scope\n");
  Write("mount/user.slice/job.scope/cpu.max", "max 100000\n");
  Write("mount/user.slice/cpu.max", "200000 100000\n");
  Write("mount/user.slice/job.scope/memory.max", "5000\n");
  Write("mount/user.slice/memory.max", "7000\n");
  Write("mount/user.slice/memory.current", "6500\n");
  Write("mount/user.slice/job.scope/pids.max", "max\n");
  Write("mount/user.slice/job.scope/pids.current", "7\n");
  Write("mount/user.slice/pids.max", "100\n");
  Write("mount/user.slice/pids.current", "100\n");
  const ControlGroupLimits limits = Read();
  EXPECT_EQ(limits.cores, 2);
  EXPECT_EQ(limits.memory, 5000);
  EXPECT_EQ(limits.memory_left, 500);
  EXPECT_EQ(limits.processes, 100);
  EXPECT_EQ(limits.processes_left, 0);
}

// cgroup v1 has a hierarchy for each controller.
TEST_F(ControlGroupTest, OfTheFirstVersion) {
  Write("membership", "5:cpuacct,cpu:/a/b\n4:memory:/a\n3:pids:/\n1:name=systemd:/x\n0::/x\n");
  Write("mount/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  Write("mount/cpu/a/b/cpu.cfs_period_us", "100000\n");
  Write("mount/cpu/a/cpu.cfs_quota_us", "50000\n");
  Write("mount/cpu/a/cpu.cfs_period_us", "100000\n");
  Write("mount/memory/a/memory.limit_in_bytes", "1000\n");
  Write("mount/memory/a/memory.usage_in_bytes", "600\n");
  Write("mount/memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 50\n");
  Write("mount/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("mount/pids/pids.max", "9\n");
  Write("mount/pids/pids.current", "3\n");
  const ControlGroupLimits limits = Read();
  EXPECT_EQ(limits.cores, 0.5);
  EXPECT_EQ(limits.memory, 1000);
  EXPECT_EQ(limits.memory_left, 450);
  EXPECT_EQ(limits.processes_left, 6);
  Write("membership", "4:memory:/elsewhere\n");
  EXPECT_EQ(Read().memory, ControlGroupLimits::kNone);
}

// Every user has a limit on processes, but what is not reached is not the cause.
TEST(ErrorText, NamesNoLimitThatIsNotReached) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NPROC, &before), 0);
  const rlimit ample{std::min<rlim_t>(before.rlim_max, 1 << 20), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NPROC, &ample), 0);
  EXPECT_EQ(ErrorText(EAGAIN).find("ulimit -u"), std::string::npos) << ErrorText(EAGAIN);
  ::setrlimit(RLIMIT_NPROC, &before);
}

}  // namespace
}  // namespace muster::testing
