// Paths may contain any bytes, such as Latin-1 file names. A run with such paths works normally.
#include <gtest/gtest.h>

#include <csignal>

#include "common/base/text.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
const std::string kRun = "run\xe9";

class PathBytes : public RealJob {
 protected:
  void ExpectWorks(const std::vector<std::string>& arguments) {
    const Outcome outcome = Muster(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << ::testing::PrintToString(arguments) << outcome.log;
  }
};

TEST_F(PathBytes, AreNoTroubleForAnyCommand) {
  ASSERT_EQ(Launch({}).exit_code, 0);  // makes the initial weights
  const std::string weights = Path("weights\xe9.safetensors");
  fs::rename(Path("run0/model.safetensors"), weights);
  fs::rename(Path("data"), Path("data\xe9"));
  const std::string run = Path(kRun), trace = Path("trace\xe9.json");
  const Outcome launched =
      Succeeded(Muster({"launch", Path("tiny.txtpb"), "--data", Path("data\xe9"), "--run-dir", run,
                        "--initial-weights", weights, "--trace", trace, "--trace-steps", "2-4",
                        "--set", "cluster.transport=TCP"},
                       kRun));
  for (const char* file : {"config.txtpb", "metrics.jsonl"}) {
    const std::string text = Slurp(Path(kRun) / file);
    EXPECT_EQ(Utf8Prefix(text), text.size()) << file;
  }
  for (const fs::path& checkpoint : Checkpoints(kRun)) ExpectWorks({"inspect", checkpoint});
  ExpectWorks({"inspect", run});
  ExpectWorks({"inspect", run + "/model.safetensors"});
  ExpectWorks({"eval", run});
  ExpectWorks({"eval", Checkpoints(kRun).back()});
  ExpectWorks({"predict", run, "--samples", "0-3"});
  ExpectWorks({"export", run, "--format", "onnx", Path("out\xe9.onnx")});
  ExpectWorks({"export", run, "--format", "safetensors", Path("out\xe9.safetensors")});
  ExpectWorks({"top", run});
  ExpectWorks({"plot", run});
  ExpectWorks({"trace", trace});
  ExpectWorks({"launch", "--resume", run});
  const Outcome runs = Succeeded(Muster({"runs", Path(""), "--json"}));
  EXPECT_EQ(Utf8Prefix(runs.log), runs.log.size());
  const Outcome longer = Succeeded(GoOn(kRun, {"--epochs", "5"}));
  EXPECT_GT(longer.metrics.back()["step"], launched.metrics.back()["step"]);
  // Repeats the run with the paths in its config.txtpb.
  const Outcome again = Succeeded(
      Muster({"launch", run + "/config.txtpb", "--run-dir", Path("again\xe9")}, "again\xe9"));
  EXPECT_EQ(again.hash(), longer.hash());
}

TEST_F(PathBytes, NothingOfAPathReachesTheTerminalRaw) {
  const std::string name = "run\n  x\x1b[31m", run = Path(name);
  ASSERT_EQ(Muster({"launch", Path("tiny.txtpb"), "--data", Path("data"), "--run-dir", run}, name)
                .exit_code,
            0);
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"inspect", run},
        {"eval", run},
        {"predict", run, "--samples", "0-3"},
        {"export", run, "--format", "onnx", run + "/out.onnx"},
        {"top", run},
        {"plot", run},
        {"runs", Path("")},
        {"launch", "--resume", run}}) {
    const Outcome outcome = Succeeded(Muster(command));
    EXPECT_EQ(outcome.log.find_first_of("\x1b"), std::string::npos) << outcome.log;
    EXPECT_NE(outcome.log.find("run\\n  x\\x1b[31m"), std::string::npos) << outcome.log;
  }
}

TEST_F(PathBytes, ALostServerIsReplaced) {
  const std::vector<std::string> settings{"run.epochs=100", "checkpoint.every_steps=5"};
  const Outcome whole = Launch(settings);
  const auto job = Start(kRun, settings);
  ASSERT_TRUE(Reaches(kRun, 20));
  pid_t server = -1;
  ASSERT_TRUE(Eventually(20, [&] { return (server = Find(kRun, -1)) > 0; }));
  ::kill(server, SIGKILL);
  EXPECT_EQ(job->Wait(60), 0) << job->Log();
  EXPECT_EQ(Metrics(kRun).back()["weights_hash"], whole.hash());
  EXPECT_EQ(Metrics(kRun).back()["server_restarts"], 1);
}

}  // namespace
}  // namespace muster::testing
