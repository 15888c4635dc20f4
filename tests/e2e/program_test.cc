// Programs that train their own model through libmuster_client.so: real processes, killed and
// resumed. The programs are examples/c_linear and cpp_linear.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "client/muster.h"
#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kUsage = static_cast<int>(ExitCode::kUsage);

class Program : public RealJob {
 protected:
  const std::string program_ = BinPath("c_linear");
  const std::string config_ = SourcePath("examples/c_linear/linear.txtpb");

  std::vector<std::string> Words(const std::string& run, int workers, int epochs,
                                 const std::string& transport = "AUTO") const {
    return {"launch",    config_,
            "--run-dir", Path(run),
            "--workers", std::to_string(workers),
            "--epochs",  std::to_string(epochs),
            "--set",     "cluster.transport=" + transport,
            "--",        program_};
  }
  std::string Hash(const std::string& run, int workers, int epochs,
                   const std::string& transport = "AUTO") {
    return Succeeded(Muster(Words(run, workers, epochs, transport), run)).hash();
  }
  std::unique_ptr<Process> Begin(const std::string& run, int workers, int epochs) {
    std::vector<std::string> words = Words(run, workers, epochs);
    words.insert(words.begin(), "muster");
    return std::make_unique<Process>(words, Path("log"));
  }
  // Sends the signal to a process of the program when the run has reached the step. Returns the
  // process, or -1.
  pid_t Signal(const std::string& run, int64_t step, int signal) {
    const pid_t program = Reaches(run, step) ? FindProgram(run) : -1;
    return program > 0 && ::kill(program, signal) == 0 ? program : -1;
  }
  // A process of the program in this run.
  pid_t FindProgram(const std::string& run) const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
      if (!Slurp(entry.path() / "cmdline").starts_with(program_)) continue;
      if (Slurp(entry.path() / "environ").find(Path(run)) != std::string::npos)
        return std::stoi(pid);
    }
    return -1;
  }
};

// Plain loops over the same points and batches are not bitwise equal, because the server adds
// slices; the fit is.
TEST_F(Program, TheBitsDoNotDependOnWorkersOrTransport) {
  const std::string expected = Hash("one", 1, 20);
  EXPECT_NE(expected, "");
  EXPECT_EQ(Hash("two", 2, 20, "TCP"), expected);
  EXPECT_EQ(Hash("three", 3, 20, "LOCAL"), expected);
  EXPECT_EQ(Hash("four", 4, 20), expected);
  // y = 2 a - 3 b + 1, which rank 0 prints from the last weights
  for (const char* run : {"one", "two", "three", "four"}) {
    const std::string log = Slurp(Path(run) / "worker-0.log");
    float a = 0, b = 0, c = 0;
    const size_t at = log.find("y = ");
    ASSERT_NE(at, std::string::npos) << log;
    ASSERT_EQ(std::sscanf(log.c_str() + at, "y = %f a + %f b + %f", &a, &b, &c), 3);
    EXPECT_NEAR(a, 2, 0.02);
    EXPECT_NEAR(b, -3, 0.02);
    EXPECT_NEAR(c, 1, 0.02);
  }
}

// Exceptions of muster.hpp carry the code of muster.h.
TEST_F(Program, InCppTrainsTheSameModel) {
  const std::string program = BinPath("cpp_linear");
  std::vector<std::string> words = Words("cpp", 2, 20);
  words.back() = program;
  const double loss = Succeeded(Muster(words, "cpp")).metrics.back()["test_loss"];
  Hash("c", 1, 20);
  EXPECT_NEAR(loss, Metrics("c").back()["test_loss"], 1e-6);
  Process alone({"cpp_linear"}, Path("log"));
  EXPECT_EQ(alone.Wait(10), kUsage);
}

TEST_F(Program, KilledProgramsHelpersAndServersChangeNothing) {
  const std::string expected = Hash("undisturbed", 2, 400);
  const auto job = Begin("run", 3, 400);
  ASSERT_GT(Signal("run", 300, SIGKILL), 0);
  ASSERT_TRUE(Reaches("run", 1500));
  const pid_t server = Find("run", -1);
  ASSERT_GT(server, 0);
  EXPECT_EQ(::kill(server, SIGKILL), 0);
  ASSERT_TRUE(Reaches("run", 3000));
  const pid_t helper = Find("run", 0);
  ASSERT_GT(helper, 0);
  EXPECT_EQ(::kill(helper, SIGKILL), 0);
  EXPECT_EQ(job->Wait(90), 0) << job->Log();
  EXPECT_EQ(Outcome{.metrics = Metrics("run")}.hash(), expected);
  EXPECT_TRUE(NothingLeft(5));
}

// The other program takes over its slices. Continued, it catches up.
TEST_F(Program, ASuspendedProgramChangesNothing) {
  const std::string expected = Hash("undisturbed", 1, 400);
  const auto job = Begin("run", 2, 400);
  const pid_t program = Signal("run", 300, SIGSTOP);
  ASSERT_GT(program, 0);
  EXPECT_TRUE(Reaches("run", 1500));
  EXPECT_EQ(::kill(program, SIGCONT), 0);
  EXPECT_EQ(job->Wait(90), 0) << job->Log();
  EXPECT_EQ(Outcome{.metrics = Metrics("run")}.hash(), expected);
}

TEST_F(Program, AStoppedRunGoesOnWithAnotherNumberOfWorkers) {
  const std::string expected = Hash("undisturbed", 1, 400);
  const auto job = Begin("run", 4, 400);
  ASSERT_TRUE(Reaches("run", 500));
  EXPECT_EQ(job->EndBy(SIGINT, 30), 128 + SIGINT);
  const Outcome outcome = Succeeded(GoOn("run", {"--workers", "2"}));
  EXPECT_EQ(outcome.hash(), expected);
  EXPECT_TRUE(NothingLeft(5));
}

TEST_F(Program, MistakesEndWithOneMessage) {
  // without a job
  Process alone({"c_linear"}, Path("log"));
  EXPECT_EQ(alone.Wait(10), kUsage);
  EXPECT_THAT(alone.Log(), HasSubstr("MUSTER_ENDPOINT"));
  // a config that has a model, or no such program
  const std::string smoke = ConfigPath("smoke.txtpb");
  EXPECT_EQ(Muster({"launch", smoke, "--", program_}).exit_code, kUsage);
  EXPECT_EQ(Muster({"launch", config_}).exit_code, kUsage);
  EXPECT_EQ(Muster({"launch", config_, "--", "there-is-no-such-program"}).exit_code, kUsage);
  // a program that never joins
  const Outcome never = Muster({"launch", config_, "--run-dir", Path("never"), "--set",
                                "deadlines.start_s=1", "--workers", "2", "--", "/bin/true"});
  EXPECT_EQ(never.exit_code, static_cast<int>(ExitCode::kDeadline)) << never.log;
  EXPECT_TRUE(NothingLeft(5));
}

TEST(ClientLibrary, RefusesWrongCalls) {
  muster_job* const job = muster_create();
  muster_work work;
  const int64_t shape[] = {2, 3}, wrong[] = {2, 0};
  EXPECT_EQ(muster_join(job, 10, 0, 0), MUSTER_USAGE) << "no variable";
  EXPECT_EQ(muster_add_variable(job, "", shape, 2, nullptr), -1);
  EXPECT_EQ(muster_add_variable(job, "w", wrong, 2, nullptr), -1);
  EXPECT_EQ(muster_add_variable(job, "w", shape, 2, nullptr), 0);
  EXPECT_EQ(muster_add_variable(job, "w", shape, 2, nullptr), -1) << "the same name";
  EXPECT_EQ(muster_add_variable(job, "b", nullptr, 0, nullptr), 1);
  float* const weights = muster_weights(job, 0);
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(weights) % 64, 0u);
  EXPECT_EQ(muster_weights(job, 1) - weights, 16) << "each variable begins at 64 bytes";
  EXPECT_EQ(muster_gradient(job, 0) - weights, 32);
  EXPECT_EQ(muster_weights(job, 2), nullptr);
  EXPECT_EQ(muster_add_variable(job, "late", shape, 2, nullptr), -1);
  EXPECT_EQ(muster_next(job, 0, &work), MUSTER_USAGE);
  EXPECT_EQ(muster_report(job, 0), MUSTER_USAGE);
  EXPECT_EQ(muster_push(job, 0), MUSTER_USAGE);
  EXPECT_EQ(muster_add_scalar(job, "a", 0), MUSTER_USAGE);
  EXPECT_EQ(muster_done(job), MUSTER_USAGE);
  EXPECT_EQ(muster_fail(job, "no"), MUSTER_USAGE);
  EXPECT_EQ(muster_set_arithmetic(job, std::string(1025, 'a').c_str()), MUSTER_USAGE);
  EXPECT_EQ(muster_join(job, 0, 0, 0), MUSTER_USAGE) << "no training samples";
  EXPECT_EQ(muster_join(job, 10, 0, 0), MUSTER_USAGE) << "no endpoint";
  EXPECT_STRNE(muster_error(job), "");
  muster_destroy(job);
  muster_destroy(nullptr);
}

}  // namespace
}  // namespace muster::testing
