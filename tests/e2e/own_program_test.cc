// What programs do with the client library: their own optimizers, scalars, failures, and leaving.
// The program is own_program.cc.
#include "tests/e2e/own_program.h"

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "common/base/text.h"
#include "common/tensors/safetensors_reader.h"
#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::HasSubstr;

class OwnProgram : public RealJob {
 protected:
  // A batch of 16 samples in 24 slices leaves eight slices empty.
  std::vector<std::string> Words(const std::string& run, const std::string& mode, int workers,
                                 const std::vector<std::string>& settings) {
    const bool sets_rate = mode == "rate" || mode == "momentum" || mode.starts_with("own");
    const std::string own = sets_rate ? "" : R"(
      optimizer { type: SGD }
      learning_rate { base: 0.5 }
    )";
    const std::string config = Write("job.txtpb", own + R"(
      run { epochs: 3 global_batch: 16 slices: 24 }
      cluster { chunk_bytes: 65536 }
    )");
    std::vector<std::string> words{"launch",  config,      "--run-dir",
                                   Path(run), "--workers", std::to_string(workers)};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    words.insert(words.end(), {"--", BinPath("own_program"), mode});
    return words;
  }
  // All processes of this run.
  std::vector<pid_t> All(const std::string& run) const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string text = Slurp(entry.path() / "cmdline") + Slurp(entry.path() / "environ");
      if (text.find(Path(run)) != std::string::npos) found.push_back(std::stoi(pid));
    }
    return found;
  }
  Outcome Run(const std::string& run, const std::string& mode, int workers,
              const std::vector<std::string>& settings = {}) {
    return Muster(Words(run, mode, workers, settings), run);
  }
};

// As a service manager does. The step that the programs compute is completed, and saved.
TEST_F(OwnProgram, SignalsToAllProcessesSaveTheRun) {
  for (const std::vector<int>& signals : {std::vector{SIGHUP}, {SIGTERM, SIGHUP}}) {
    std::vector<std::string> words = Words(
        "run", "slow", 2, {"run.slices=2", "run.epochs=100000", "checkpoint.every_steps=1000000"});
    words.insert(words.begin(), "muster");
    const auto job = std::make_unique<Process>(words, Path("log"));
    ASSERT_TRUE(Reaches("run", 10)) << job->Log();
    const std::vector<pid_t> all = All("run");
    ASSERT_EQ(all.size(), 6u);  // launcher, server, programs and their helpers
    for (const int signal : signals) {
      for (const pid_t pid : all) ::kill(pid, signal);
    }
    EXPECT_EQ(job->Wait(20), static_cast<int>(ExitCode::kTerminated)) << job->Log();
    EXPECT_THAT(job->Log(),
                HasSubstr(fmt::format("To resume from step {}:",
                                      FormatCount(Metrics("run").back()["step"].get<int64_t>()))));
    EXPECT_TRUE(All("run").empty());
    std::filesystem::remove_all(Path("run"));
  }
}

// Each epoch has every sample once, so after three the weights are w - 3 r (1/16) Σ a_i. Floats
// add these numbers exactly.
TEST_F(OwnProgram, TheWeightsHaveTheirClosedForm) {
  std::string hash;
  for (const auto& [mode, workers, transport] :
       {std::tuple{"push", 1, "AUTO"}, {"whole", 2, "TCP"}, {"push", 3, "LOCAL"}}) {
    const std::string run = fmt::format("run-{}", workers);
    const Outcome outcome =
        Succeeded(Run(run, mode, workers, {std::string("cluster.transport=") + transport}));
    if (hash.empty()) hash = outcome.hash();
    EXPECT_EQ(outcome.hash(), hash);
    double loss = -own_program::kSamples;
    for (int64_t i = 0; i < own_program::kSamples; ++i) loss += own_program::Slope(i, 0);
    EXPECT_EQ(outcome.metrics.back()["test_loss"], loss / own_program::kSamples);
    EXPECT_TRUE(outcome.metrics.back()["test_accuracy"].is_null());
    const SafetensorsReader model(Path(run) / "model.safetensors");
    ASSERT_EQ(model.header().tensors.size(), std::size(own_program::kCounts));
    for (const StoredTensor& tensor : model.header().tensors) {
      const auto* const name = std::ranges::find(own_program::kNames, tensor.name);
      ASSERT_NE(name, std::end(own_program::kNames)) << tensor.name;
      const int64_t count = own_program::kCounts[name - own_program::kNames];
      std::vector<float> got(static_cast<size_t>(count)), expected(got.size());
      model.ReadFloats(tensor, got);
      for (int64_t j = 0; j < count; ++j) {
        float sum = 0;
        for (int64_t i = 0; i < own_program::kSamples; ++i) sum += own_program::Slope(i, j);
        expected[static_cast<size_t>(j)] =
            own_program::Initial(j) - 3 * 0.5f * sum / own_program::kBatch;
      }
      EXPECT_EQ(got, expected) << tensor.name;
      // rank 0 has the same last weights
      EXPECT_THAT(Slurp(Path(run) / "worker-0.log"),
                  HasSubstr(fmt::format("{} {:.9g}", tensor.name, expected[1])));
    }
  }
}

// As above, but the program halves the learning rate after each epoch.
TEST_F(OwnProgram, SetsItsOptimizerAndLearningRate) {
  std::string hash;
  for (const int workers : {1, 3}) {
    const std::string run = fmt::format("run-{}", workers);
    const Outcome outcome = Succeeded(Run(run, "rate", workers));
    if (hash.empty()) hash = outcome.hash();
    EXPECT_EQ(outcome.hash(), hash);
    EXPECT_EQ(outcome.metrics.back()["learning_rate"], own_program::Rate(2));
    const SafetensorsReader model(Path(run) / "model.safetensors");
    for (const StoredTensor& tensor : model.header().tensors) {
      std::vector<float> got(static_cast<size_t>(tensor.bytes()) / sizeof(float));
      model.ReadFloats(tensor, got);
      if (tensor.name == "averaged") {
        EXPECT_EQ(got, std::vector<float>{own_program::Averaged(5)});
        continue;
      }
      std::vector<float> expected(got.size());
      for (size_t j = 0; j < got.size(); ++j) {
        float sum = 0;
        for (int64_t i = 0; i < own_program::kSamples; ++i)
          sum += own_program::Slope(i, static_cast<int64_t>(j));
        expected[j] = own_program::Initial(static_cast<int64_t>(j)) -
                      (0.5f + 0.25f + 0.125f) * sum / own_program::kBatch;
      }
      EXPECT_EQ(got, expected) << tensor.name;
    }
  }
  // Exactly one of config and program sets the rate.
  const int refused = static_cast<int>(ExitCode::kRefused);
  EXPECT_EQ(Run("both", "rate", 1, {"learning_rate.base=0.5"}).exit_code, refused);
  const std::string neither = Write("neither.txtpb", "run { epochs: 1 global_batch: 16 }");
  EXPECT_EQ(Muster({"launch", neither, "--run-dir", Path("neither"), "--", BinPath("own_program"),
                    "push"})
                .exit_code,
            refused);
  // A resumed run must keep its optimizer, which the program sends again.
  EXPECT_EQ(Succeeded(GoOn("run-3", {"--epochs", "4", "--workers", "2"})).metrics.back()["steps"],
            8);
}

// The program's own momentum has the bits of the server's, also when its state comes from a
// checkpoint, and with 16 bits on the wire.
TEST_F(OwnProgram, UpdatesTheWeightsItself) {
  const auto hash = [&](const std::string& run, const std::string& mode, int workers,
                        const std::string& setting) {
    return Succeeded(Run(run, mode, workers, {setting, "run.on_nonfinite=SKIP_STEP"})).hash();
  };
  for (const std::string type : {"FP32", "BF16"}) {
    const std::string setting = "cluster.wire_dtype=" + type;
    const std::string expected = hash("server-" + type, "momentum", 1, setting);
    for (const int workers : {1, 3})
      EXPECT_EQ(hash(fmt::format("own-{}-{}", workers, type), "own", workers, setting), expected);
    EXPECT_EQ(Succeeded(GoOn("own-3-" + type, {"--epochs", "4", "--workers", "2"})).hash(),
              Succeeded(GoOn("server-" + type, {"--epochs", "4"})).hash());
  }
  EXPECT_EQ(Muster({"verify", Path("own-1-FP32").string()}).exit_code, 0);
  // Settings of the server's optimizer
  for (const char* const setting : {"optimizer.clip_norm=1", "optimizer.ema_decay=0.5"}) {
    const int code = Run(std::string("run-") + setting, "own", 1, {setting}).exit_code;
    EXPECT_EQ(code, static_cast<int>(ExitCode::kRefused)) << setting;
  }
  EXPECT_EQ(Run("nan", "own_nan", 2).exit_code, static_cast<int>(ExitCode::kNonfinite));
  EXPECT_EQ(Run("ends", "own_ends", 2).exit_code, static_cast<int>(ExitCode::kPeerFailed));
  EXPECT_EQ(Run("hangs", "own_hangs", 2, {"deadlines.first_step_s=1"}).exit_code,
            static_cast<int>(ExitCode::kDeadline));
  const Outcome late = Run("late", "own_late", 2);
  EXPECT_EQ(late.exit_code, static_cast<int>(ExitCode::kFailure));
  EXPECT_THAT(late.log, HasSubstr("ended with exit code 5"));
  // A damaged state is damage of its checkpoint.
  const std::filesystem::path checkpoints = Path("own-3-FP32") / "checkpoints";
  for (const auto& checkpoint : std::filesystem::directory_iterator(checkpoints)) {
    if (checkpoint.is_directory())
      std::ofstream(checkpoint.path() / "program.state", std::ios::app) << "x";
  }
  EXPECT_EQ(GoOn("own-3-FP32", {"--epochs", "5"}).exit_code, static_cast<int>(ExitCode::kData));
  EXPECT_TRUE(NothingLeft(5));
}

// It takes the server with it, and both are restarted.
TEST_F(OwnProgram, AKilledUpdaterChangesNothing) {
  const std::vector<std::string> settings{"run.epochs=300", "checkpoint.every_steps=50"};
  const std::string expected = Succeeded(Run("undisturbed", "own", 1, settings)).hash();
  std::vector<std::string> words = Words("run", "own", 2, settings);
  words.insert(words.begin(), "muster");
  Process job(words, Path("log"));
  ASSERT_TRUE(Reaches("run", 150));
  pid_t updater = -1;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    const std::string environment = Slurp(entry.path() / "environ");
    const bool is_ours = environment.find(Path("run")) != std::string::npos;
    if (is_ours && environment.find("MUSTER_RANK=-1") != std::string::npos)
      updater = std::stoi(pid);
  }
  ASSERT_GT(updater, 0);
  // Without it, the run waits.
  EXPECT_EQ(::kill(updater, SIGSTOP), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(::kill(updater, SIGCONT), 0);
  ASSERT_TRUE(Reaches("run", 250));
  EXPECT_EQ(::kill(updater, SIGKILL), 0);
  EXPECT_EQ(job.Wait(90), 0) << job.Log();
  const Outcome outcome{.metrics = Metrics("run")};
  EXPECT_EQ(outcome.hash(), expected);
  EXPECT_EQ(outcome.metrics.back()["server_restarts"], 1);
  EXPECT_TRUE(NothingLeft(5));
}

// Each interval is an epoch, and each of its slices has one sample. Blocks begin at 0, 5, 10, …, so
// those of the odd samples 5, 15 and 25 are odd.
TEST_F(OwnProgram, ScalarsHaveTheirClosedForm) {
  const std::vector<std::string> settings{"run.log_every_steps=2", "evaluation.batch=5"};
  std::vector<nlohmann::json> expected;
  for (const int workers : {1, 2, 3}) {
    const Outcome outcome =
        Succeeded(Run(fmt::format("run-{}", workers), "push", workers, settings));
    int intervals = 0, tests = 0;
    for (const nlohmann::json& line : outcome.metrics) {
      EXPECT_EQ(line["scalars"].size(), 3u) << line;
      EXPECT_EQ(line["scalars"]["index"], 15.5) << line;
      EXPECT_EQ(line["scalars"]["odd"], 16) << line;
      ++(line.contains("test_loss") ? tests : intervals);
      if (!line.contains("test_loss")) continue;
      const nlohmann::json& scalars = line["test_scalars"];
      EXPECT_EQ(scalars["index"], 15.5) << line;
      EXPECT_EQ(scalars["odd"], 17) << line;
      EXPECT_TRUE(scalars.contains("nan") && scalars["nan"].is_null()) << line;
      EXPECT_EQ(scalars.size(), 32u) << line;
    }
    EXPECT_EQ(intervals, 3);
    EXPECT_EQ(tests, 4) << "of each epoch, and the last in the summary";
    if (expected.empty()) expected = Curve(outcome.metrics);
    EXPECT_EQ(Curve(outcome.metrics), expected);
    EXPECT_THAT(outcome.log, HasSubstr("  index 15.5"));
    EXPECT_THAT(outcome.log, HasSubstr("  nan not finite"));
  }
}

// With 16 bits on the wire, each node of the slice tree is rounded once, wherever it is added.
TEST_F(OwnProgram, SixteenBitsAveragesAndSkippedStepsKeepTheBits) {
  const std::vector<std::string> settings{"cluster.wire_dtype=BF16", "optimizer.ema_decay=0.5",
                                          "evaluation.use_ema=true", "run.on_nonfinite=SKIP_STEP",
                                          "optimizer.type=ADAM"};
  const std::string hash = Succeeded(Run("one", "push", 1, settings)).hash();
  EXPECT_EQ(Succeeded(Run("two", "whole", 2, settings)).hash(), hash);
  EXPECT_EQ(Succeeded(Run("three", "push", 3, settings)).hash(), hash);
}

TEST_F(OwnProgram, ALossScaleKeepsTheBits) {
  const std::string hash = Succeeded(Run("plain", "push", 1)).hash();
  const Outcome scaled = Succeeded(Run("scaled", "scaled", 2));
  EXPECT_EQ(scaled.hash(), hash);
  EXPECT_EQ(scaled.metrics.back()["loss_scale"], 65536);
  const std::string fp16 = "worker.precision=FP16";
  EXPECT_EQ(Succeeded(Run("config", "scaled", 1, {fp16})).hash(), hash);
  EXPECT_EQ(Succeeded(GoOn("scaled", {"--epochs", "4"})).metrics.back()["loss_scale"], 65536);
  // This program would not multiply by it.
  const Outcome refused = Run("refused", "push", 1, {fp16});
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::kRefused));
  EXPECT_THAT(refused.log, HasSubstr("expected muster_set_loss_scaling"));
  EXPECT_EQ(Run("bf16", "push", 1, {"worker.precision=BF16"}).exit_code,
            static_cast<int>(ExitCode::kUsage));
}

TEST_F(OwnProgram, AProgramThatFailsEndsTheJobWithItsMessage) {
  const Outcome fails = Run("fails", "fail", 2);
  EXPECT_NE(fails.exit_code, 0);
  EXPECT_THAT(fails.log, HasSubstr("no more fuel"));
  const Outcome ends = Run("ends", "ends", 2);
  EXPECT_EQ(ends.exit_code, 3) << ends.log;
  const Outcome other = Run("other", "other", 2);
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kRefused)) << other.log;
  EXPECT_TRUE(NothingLeft(5));
}

// Gradients are sent while the program computes others.
TEST_F(OwnProgram, TheTraceHasBothPassesAndTheirOverlapWithPushes) {
  Succeeded(Run("run", "push", 2,
                {fmt::format("run.trace_file={}", Path("trace.json").string()),
                 "run.trace_first_step=1", "run.trace_steps=3"}));
  const auto trace = nlohmann::json::parse(Slurp(Path("trace.json")));
  const nlohmann::json& events = trace.is_array() ? trace : trace["traceEvents"];
  const auto spans = [&](const std::string& category) {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& event : events) {
      if (event.value("cat", "") == category) found.push_back(event);
    }
    return found;
  };
  int within = 0;
  for (const nlohmann::json& push : spans("push")) {
    for (const nlohmann::json& pass : spans("backward")) {
      const double begin = pass["ts"], end = begin + pass["dur"].get<double>(), at = push["ts"];
      if (pass["pid"] == push["pid"] && begin <= at && at < end) ++within;
    }
  }
  EXPECT_EQ(spans("forward").size(), spans("backward").size());
  EXPECT_GT(within, 0);
}

TEST_F(OwnProgram, AProgramMayLeave) {
  const std::string hash = Succeeded(Run("one", "push", 1)).hash();
  EXPECT_EQ(Succeeded(Run("two", "leave", 2)).hash(), hash);
}

}  // namespace
}  // namespace muster::testing
