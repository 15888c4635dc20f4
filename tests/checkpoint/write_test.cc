// A checkpoint is either complete or absent, even if any call that writes it fails, finds the disk
// full, or kills the process.
#include <fcntl.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "tests/checkpoint/some_run.h"
#include "tests/checkpoint/system_calls.h"

namespace muster {
namespace write_test {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using testing::Fault;
using ::testing::HasSubstr;
using testing::SomeRun;
using testing::SystemCall;

constexpr CheckpointName kOldest{.generation = 1, .step = 3}, kOlder{.generation = 1, .step = 7};
constexpr CheckpointName kNewer{.generation = 1, .step = 12};
constexpr size_t kMostCalls = 200;

// Two checkpoints exist. The third one is written, and the oldest is removed.
class WriteTest : public ::testing::Test {
 protected:
  void BeginAgain() {
    fs::remove_all(CheckpointsFolder(run_.dir()));
    run_.Write(kOldest);
    run_.Write(kOlder);
  }
  void WriteNewer() { run_.Write(kNewer, {kOldest}); }
  bool IsThere(const CheckpointName& name) const { return fs::exists(run_.Folder(name)); }
  // Writes a checkpoint in a child process with this fault. Returns the child's exit status.
  int WriteInChild(Fault fault, size_t at) {
    const pid_t child = ::fork();
    if (child == 0) {
      testing::WatchCalls(run_.dir(), fault, at);
      WriteNewer();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }
  SomeRun run_;
};

class KillTest : public WriteTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(KillTest, AtEachCall) {
  size_t killed = 0;
  for (size_t at = 0; at < kMostCalls; ++at) {
    BeginAgain();
    const int status = WriteInChild(GetParam(), at);
    ASSERT_THAT(run_.Newest(), AnyOf(kOlder, kNewer)) << at;
    ASSERT_TRUE(IsThere(kOlder)) << at;
    // Old ones are removed only after the new one is durable.
    ASSERT_TRUE(IsThere(kOldest) || run_.Newest() == kNewer) << at;
    if (WIFSIGNALED(status)) {
      ASSERT_EQ(WTERMSIG(status), SIGKILL);
      ++killed;
    }
    // The next server can remove all leftovers.
    RemoveLeftovers(run_.dir());
    WriteNewer();
    ASSERT_EQ(run_.Newest(), kNewer) << at;
    ASSERT_EQ(std::distance(fs::directory_iterator(CheckpointsFolder(run_.dir())), {}), 3) << at;
    if (GetParam() == Fault::kKill && !WIFSIGNALED(status)) break;  // there was no such call
  }
  EXPECT_GT(killed, GetParam() == Fault::kKill ? 15u : 2u);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, KillTest, ::testing::Values(Fault::kKill, Fault::kKillInside));

class ErrorTest : public WriteTest, public ::testing::WithParamInterface<int> {};

TEST_P(ErrorTest, OfEachCall) {
  size_t failed = 0;
  for (size_t at = 0; at < kMostCalls; ++at) {
    BeginAgain();
    testing::WatchCalls(run_.dir(), Fault::kError, at, GetParam());
    std::string said;
    try {
      WriteNewer();
    } catch (const Error& error) {
      said = error.what();
    }
    const bool reached = testing::TakeCalls().size() > at;
    ASSERT_TRUE(IsThere(kOlder)) << at;
    ASSERT_THAT(run_.Newest(), AnyOf(kOlder, kNewer)) << at;
    if (said.empty()) {
      ASSERT_EQ(run_.Newest(), kNewer) << at;
    } else {
      ++failed;
      ASSERT_THAT(said, HasSubstr(run_.dir())) << at;
      ASSERT_TRUE(IsThere(kOldest)) << at;
    }
    WriteNewer();  // the next attempt
    ASSERT_EQ(run_.Newest(), kNewer) << at;
    if (!reached) break;
  }
  EXPECT_GT(failed, 10u);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, ErrorTest, ::testing::Values(ENOSPC, EIO));

// The order of calls protects from a loss of power: a checkpoint is renamed after all of it is on
// the disk, and old ones are removed after the new name is.
TEST_F(WriteTest, TheOrderInWhichThingsReachTheDisk) {
  BeginAgain();
  const std::string log = run_.dir() + "/run.events";
  const UniqueFd log_fd(::open(log.c_str(), O_WRONLY | O_CREAT, 0644));
  CheckpointToWrite what = run_.At(kNewer);
  what.log_fd = log_fd.get();
  what.expired = {kOldest};
  testing::WatchCalls(run_.dir());
  WriteCheckpoint(what, run_.image());
  const std::vector<SystemCall> calls = testing::TakeCalls();

  const auto place = [&](const char* name, const std::string& path, bool last = false) {
    const auto is = [&](const SystemCall& call) { return call.name == name && call.path == path; };
    const auto found = std::ranges::find_if(calls, is);
    EXPECT_NE(found, calls.end()) << name << " " << path;
    if (!last) return found - calls.begin();
    return calls.rend() - std::find_if(calls.rbegin(), calls.rend(), is) - 1;
  };
  const std::string partial = run_.Folder(kNewer) + ".partial";
  const auto renamed = place("rename", partial);
  const auto folder_synced = place("fsync", partial);
  for (const char* file : {kStateFile, kTensorFile}) {
    const std::string path = partial + "/" + file;
    EXPECT_LT(place("write", path, true), place("fsync", path));
    EXPECT_LT(place("fsync", path), folder_synced);
  }
  EXPECT_LT(place("truncate", partial + "/" + kTensorFile),
            place("fsync", partial + "/" + kTensorFile));
  EXPECT_LT(folder_synced, renamed);
  EXPECT_LT(place("fsync", log), renamed);
  const auto around_synced = place("fsync", CheckpointsFolder(run_.dir()));
  EXPECT_LT(renamed, around_synced);
  EXPECT_LT(around_synced, place("rename", run_.Folder(kOldest)));
  for (const SystemCall& call : calls) {
    if (call.name != "remove" || call.path.find(".partial") != std::string::npos) continue;
    EXPECT_THAT(call.path, HasSubstr(kOldest.Text() + ".removing"));
  }
}

// The folder of the first checkpoint must also survive a loss of power.
TEST_F(WriteTest, TheFirstOne) {
  testing::WatchCalls(run_.dir());
  run_.Write(kOldest);
  const std::vector<SystemCall> calls = testing::TakeCalls();
  ASSERT_GT(calls.size(), 2u);
  EXPECT_EQ(calls[0].name, "mkdir");
  EXPECT_EQ(calls[1].name, "fsync");
  EXPECT_EQ(calls[1].path, run_.dir());
  EXPECT_EQ(run_.Newest(), kOldest);
}

TEST_F(WriteTest, ADirectoryThatIsGone) {
  fs::remove_all(run_.dir());
  try {
    run_.Write(kOldest);
    FAIL() << "the write succeeded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(CheckpointsFolder(run_.dir())));
  }
}

}  // namespace write_test
}  // namespace muster
