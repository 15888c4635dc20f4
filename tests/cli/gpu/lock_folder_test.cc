// Locking a GPU while another process removes the lock file.
#include "cli/gpu/lock_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "common/base/file.h"
#include "tests/cli/gpu/gpu_fixture.h"

namespace muster::testing {
namespace {

// A cleaner removes the file whenever it is unlocked. A job that opened the file before that holds
// a lock on a file that no other job can find, so it must check again.
TEST(LockFolderTest, OneGpuNeverGoesToTwoJobs) {
  const SharedFolder shared;
  const std::string file = shared.path() + "/muster-gpu-" + CardName(0) + ".lock";
  std::atomic<int> removed{0};
  std::jthread cleaner([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const UniqueFd open(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
      if (!open.valid() || TryLock(open.get()) != Locked::kYes) continue;
      if (IsStillAt(open.get(), file) && ::unlink(file.c_str()) == 0) ++removed;
    }
  });
  int taken = 0, twice = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (taken < 20'000 && std::chrono::steady_clock::now() < end) {
    try {
      const GpuLock lock = shared.folder().LockGpu(CardName(0));
      if (!lock.valid()) continue;
      ++taken;
      if (shared.folder().LockGpu(CardName(0)).valid()) ++twice;
    } catch (const Error&) {
      // The cleaner won the race each time.
    }
  }
  cleaner.request_stop();
  cleaner.join();
  EXPECT_EQ(twice, 0) << "of " << taken;
  EXPECT_GT(taken, 0);
  EXPECT_GT(removed, 0);
}

TEST(LockFolderTest, ARemovedFileDoesNotFreeAGpu) {
  const SharedFolder shared;
  const LockFolder folder = shared.folder();
  GpuLock lock = folder.LockGpu(CardName(0));
  ASSERT_TRUE(lock.valid());
  ASSERT_EQ(::unlink((shared.path() + "/muster-gpu-" + CardName(0) + ".lock").c_str()), 0);
  EXPECT_FALSE(folder.LockGpu(CardName(0)).valid());
  EXPECT_NE(folder.LockHolder(CardName(0)).find("(pid " + std::to_string(::getpid()) + ")"),
            std::string::npos);
  EXPECT_TRUE(folder.LockGpu(CardName(1)).valid());
  EXPECT_TRUE(SharedFolder().folder().LockGpu(CardName(0)).valid());
  // Whoever inherits the lock holds it.
  ForkedProcess worker([] {
    for (;;) ::pause();
    return 0;
  });
  lock = {};
  EXPECT_FALSE(folder.LockGpu(CardName(0)).valid());
  worker.Kill();
  EXPECT_TRUE(folder.LockGpu(CardName(0)).valid());
  EXPECT_EQ(folder.LockHolder(CardName(0)), "");
}

}  // namespace
}  // namespace muster::testing
