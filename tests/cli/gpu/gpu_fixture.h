// Shared by the GPU tests: GPUs in memory, a folder for locks, and processes that take GPUs.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/lock_folder.h"
#include "cli/gpu/take_gpus.h"
#include "tests/data/temp_dir.h"

namespace muster::testing {

inline constexpr uint64_t kCardBytes = 80'000'000'000;

inline std::string CardName(size_t number) {
  return "GPU-0000000" + std::to_string(number) + "-0000-0000-0000-000000000000";
}

inline Gpu IdleCard(size_t number) {
  Gpu gpu{.index = std::to_string(number), .uuid = CardName(number), .name = "Fake H100"};
  gpu.total_bytes = kCardBytes;
  gpu.free_bytes = kCardBytes;
  gpu.sensors.utilization = 0;
  return gpu;
}

inline GpuSnapshot IdleCards(size_t count) {
  GpuSnapshot seen{.driver = "580.65.06"};
  for (size_t i = 0; i < count; ++i) seen.gpus.push_back(IdleCard(i));
  seen.links.assign(count, std::vector<GpuLink>(count, GpuLink::kSystem));
  return seen;
}

inline std::vector<std::string> Names(std::initializer_list<size_t> numbers) {
  std::vector<std::string> names;
  for (const size_t number : numbers) names.push_back(CardName(number));
  return names;
}

// Returns the snapshots in order, and then repeats the last one.
class ScriptedProbe : public GpuProbe {
 public:
  explicit ScriptedProbe(std::vector<GpuSnapshot> looks) : looks_(std::move(looks)) {}
  GpuSnapshot Look(LookAtLinks) override {
    const size_t look = std::min(looked_++, looks_.size() - 1);
    return looks_[look];
  }
  size_t looked() const { return looked_; }

 private:
  std::vector<GpuSnapshot> looks_;
  size_t looked_ = 0;
};

// A test's own replacement of /run/lock.
class SharedFolder {
 public:
  SharedFolder() { ::chmod(dir_.path().c_str(), 01777); }
  LockFolder folder() const { return LockFolder(dir_.path().string()); }
  std::string path() const { return dir_.path().string(); }

 private:
  TempDir dir_;
};

inline TakeOptions Patient(double wait_s = 0) {
  return {
      .wait_s = wait_s,
      .say = [](const std::string&) {},
      .sleep =
          [](double seconds) {
            // Shortens waits. No test depends on their length.
            std::this_thread::sleep_for(std::chrono::duration<double>(std::min(seconds, 0.005)));
          }};
}

inline GpuWish AnyOf(size_t cards, size_t count) {
  GpuWish wish{.count = count, .what = "a test"};
  for (size_t i = 0; i < cards; ++i) wish.pool.push_back(CardName(i));
  return wish;
}

// A child process. The destructor kills it and waits for it.
class ForkedProcess {
 public:
  explicit ForkedProcess(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "process %d: %s\n", ::getpid(), error.what());
    }
    ::_exit(code);
  }
  ~ForkedProcess() { Kill(); }
  ForkedProcess(const ForkedProcess&) = delete;
  ForkedProcess& operator=(const ForkedProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Kill() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    (void)Wait();
  }
  // Returns its exit code, or -1 if a signal ended it.
  int Wait() {
    if (pid_ <= 0) return -1;
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

// Waits for a condition that another process fulfils.
inline ::testing::AssertionResult Eventually(const std::function<bool()>& condition,
                                             double seconds = 15) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return ::testing::AssertionFailure() << "timed out";
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return ::testing::AssertionSuccess();
}

}  // namespace muster::testing
