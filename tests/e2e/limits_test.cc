// Errors caused by ulimit name the limit. No signal or library abort ends a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCrashes = "SIG";

class Limits : public RealJob {
 protected:
  Outcome LaunchWith(__rlimit_resource resource, rlim_t limit,
                     const std::vector<std::string>& settings = {}, uid_t user = 0) {
    Process process(LaunchWords(Path("tiny.txtpb"), Path("data"), Path("run"), settings),
                    Path("run.log"), {.limit = {{resource, limit}}, .user = user});
    const int exit_code = process.Wait(60);
    return {.exit_code = exit_code, .log = process.Log(), .metrics = {}};
  }
};

// The limit also applies to shared memory.
TEST_F(Limits, TheSizeOfAFile) {
  const Outcome outcome = LaunchWith(RLIMIT_FSIZE, 4096);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("shared memory"), HasSubstr("ulimit -f allows 4096"),
                                 Not(HasSubstr(kCrashes))));
  EXPECT_TRUE(NothingLeft(5));
}

// The server's output reaches the limit during the run.
TEST_F(Limits, TheSizeOfAFileThatGrows) {
  const Outcome outcome = LaunchWith(RLIMIT_FSIZE, 700 << 10, {"run.epochs=300"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("run.events"), HasSubstr("ulimit -f allows 716800"),
                                 Not(HasSubstr(kCrashes))));
  EXPECT_TRUE(NothingLeft(5));
}

TEST_F(Limits, OpenFiles) {
  for (const rlim_t limit : {16, 24, 63}) {
    const Outcome outcome = LaunchWith(RLIMIT_NOFILE, limit);
    EXPECT_EQ(outcome.exit_code, 1) << limit;
    EXPECT_THAT(outcome.log,
                AllOf(HasSubstr("open files"), HasSubstr("ulimit -n"), Not(HasSubstr(kCrashes))));
  }
}

// The server's limit is known before it starts.
TEST_F(Limits, OpenFilesOfTheServer) {
  const Outcome outcome = LaunchWith(RLIMIT_NOFILE, 70);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("a job of 2 workers needs up to 80 open files"),
                                 HasSubstr("ulimit -n 80")));
}

TEST_F(Limits, Threads) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  if (!EveryoneMayRunThePrograms()) {
    GTEST_SKIP() << "other users may not run the programs in " << BinDir();
  }
  const auto user = static_cast<uid_t>(1000000 + ::getpid());
  std::filesystem::permissions(Path(""), std::filesystem::perms::all);
  const Outcome outcome = LaunchWith(RLIMIT_NPROC, 3, {}, user);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.log, AllOf(HasSubstr("more threads"), HasSubstr("ulimit -u allows 3"),
                                 Not(HasSubstr(kCrashes))));
}

}  // namespace
}  // namespace muster::testing
