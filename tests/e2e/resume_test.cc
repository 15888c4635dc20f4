// Stopped or killed runs are resumed: the same bits and curve, and nothing is overwritten.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <set>

#include "common/tensors/safetensors_reader.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace resume_test {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

using Resume = RealJob;

const std::vector<std::string> kLong{"run.epochs=60", "evaluation.every_steps=7",
                                     "optimizer.ema_decay=0.9", "evaluation.use_ema=true",
                                     "checkpoint.every_steps=5"};

// An epoch has 6 steps, and a line.
TEST_F(Resume, AfterAKillOnOtherWorkersAndAnotherTransport) {
  std::vector<std::string> settings = kLong;
  settings.emplace_back("run.log_every_steps=50");
  const Outcome whole = Succeeded(Launch(settings));
  std::set<int64_t> intervals;
  for (const auto& line : whole.metrics) {
    if (line.contains("test_loss") || line.contains("validation_loss")) continue;
    EXPECT_EQ(line["loss_steps"], 6) << line;
    EXPECT_TRUE(intervals.insert(line["step"].get<int64_t>()).second) << line;
  }
  EXPECT_EQ(intervals.size(), 60u);
  const auto process = Start("run", settings);
  ASSERT_TRUE(Reaches("run", 20));
  ASSERT_TRUE(Eventually(20, [&] { return !Checkpoints("run").empty(); }));
  KillAll("run", *process);
  const Outcome rest = Succeeded(GoOn("run", {"--workers", "4", "--set", "cluster.transport=TCP"}));
  EXPECT_EQ(rest.hash(), whole.hash());
  EXPECT_EQ(Curve(rest.metrics), Curve(whole.metrics));
  EXPECT_THAT(rest.log, ContainsRegex("resumes +[0-9]+ of 360 steps done"));
}

// Two signals: SIGUSR1 only requests a checkpoint, and SIGINT stops the run.
TEST_F(Resume, AfterASignalItGoesOnWhereItStopped) {
  const Outcome whole = Launch(kLong);
  std::vector<std::string> settings = kLong;
  settings.back() = "checkpoint.every_epochs=0";
  const auto process = Start("run", settings);
  ASSERT_TRUE(Reaches("run", 3));
  process->Signal(SIGUSR1);
  // A scheduler sends it to every process of the job.
  for (const int rank : {0, 1}) {
    const pid_t worker = Find("run", rank);
    ASSERT_GT(worker, 0);
    ::kill(worker, SIGUSR1);
  }
  ASSERT_TRUE(Eventually(20, [&] { return Checkpoints("run").size() == 2; })) << process->Log();
  ASSERT_EQ(process->EndBy(SIGINT, 20), 130);
  EXPECT_THAT(process->Log(),
              ContainsRegex("To resume from step [0-9,]+: muster launch --resume .*/run"));
  const auto stopped = Metrics("run");
  EXPECT_EQ(stopped.back()["reason"], "interrupted");
  const Outcome rest = Succeeded(GoOn("run", {"--workers", "1"}));
  EXPECT_EQ(rest.hash(), whole.hash());
  EXPECT_EQ(Curve(rest.metrics), Curve(whole.metrics));
  // No step was repeated.
  EXPECT_THAT(rest.log, HasSubstr("resumes       ")) << rest.log;
}

// A scheduler may send it before there is anything to save.
TEST_F(Resume, ASignalThatComesTooEarlyEndsNothing) {
  const auto process = Start("run", {"run.epochs=100000"});
  const std::string status = "/proc/" + std::to_string(process->pid()) + "/status";
  const auto takes = [&] {
    std::ifstream lines(status);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("SigIgn:")) continue;
      return (std::stoull(line.substr(7), nullptr, 16) >> (SIGUSR1 - 1) & 1) != 0;
    }
    return false;
  };
  ASSERT_TRUE(Eventually(20, takes));  // the program has started
  ASSERT_TRUE(Eventually(20, [&] {
    process->Signal(SIGUSR1);
    return !Metrics("run").empty();
  })) << process->Log();
  EXPECT_EQ(process->EndBy(SIGINT, 20), 130) << process->Log();
}

TEST_F(Resume, ADirectoryIsUsedByOneAtATimeAndNeverOverwritten) {
  const auto process = Start("run", {"run.epochs=100000"});
  ASSERT_TRUE(Reaches("run", 2));
  const std::vector<std::string> fresh{"launch",     Path("tiny.txtpb"), "--data",
                                       Path("data"), "--run-dir",        Path("run")};
  const std::vector<std::string> resume{"launch", "--resume", Path("run")};
  for (const auto& arguments : {fresh, resume}) {
    const Outcome second = Muster(arguments);
    EXPECT_EQ(second.exit_code, 2);
    EXPECT_THAT(second.log, HasSubstr("in use by another muster launch (pid " +
                                      std::to_string(process->pid()) + " on host "));
  }
  // A server started by hand reports it, too.
  Process server({"muster-server", "--config", Path("run") / "config.txtpb", "--resume"},
                 Path("server.log"), {.environment = {{"MUSTER_TOKEN", std::string(32, 'a')}}});
  EXPECT_EQ(server.Wait(30), 2);
  EXPECT_THAT(server.Log(),
              HasSubstr("is in use by the server with pid " + std::to_string(Find("run", -1))));
  EXPECT_EQ(process->EndBy(SIGTERM, 20), 143);
  const Outcome again = Muster(fresh);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.log, HasSubstr("resume that run with --resume"));
}

TEST_F(Resume, ADamagedCheckpointIsNamedAndTheOneBeforeUsed) {
  const Outcome whole = Launch(kLong);
  const std::vector<fs::path> kept = Checkpoints("run0");
  ASSERT_EQ(kept.size(), 2u);
  fs::resize_file(kept[1] / "tensors.safetensors", 5000);
  const Outcome rest = Succeeded(GoOn("run0"));
  EXPECT_THAT(
      rest.log,
      AllOf(HasSubstr("the checkpoint " + kept[1].filename().string() + " is damaged: "),
            HasSubstr("resuming from the previous checkpoint, " + kept[0].filename().string())));
  EXPECT_EQ(rest.hash(), whole.hash());
  EXPECT_EQ(Curve(rest.metrics), Curve(whole.metrics));
  // It was not used.
  EXPECT_TRUE(fs::exists(kept[1]));
  for (const fs::path& one : Checkpoints("run0")) std::ofstream(one / "state.pb") << "nonsense";
  const Outcome none = GoOn("run0");
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.log, HasSubstr("no intact checkpoint"));
  EXPECT_EQ(Curve(Metrics("run0")), Curve(whole.metrics));
}

TEST_F(Resume, ALongerRun) {
  const Outcome whole = Launch({"run.epochs=9", "evaluation.every_epochs=3"});
  ASSERT_EQ(Launch({"run.epochs=6", "evaluation.every_epochs=3"}).exit_code, 0);
  const Outcome longer = Succeeded(GoOn("run1", {"--epochs", "9"}));
  EXPECT_EQ(longer.hash(), whole.hash());
  EXPECT_EQ(Curve(longer.metrics), Curve(whole.metrics));
  const Outcome done = GoOn("run1");  // nothing is left to do
  EXPECT_EQ(done.exit_code, 0) << done.log;
  EXPECT_EQ(Curve(done.metrics), Curve(whole.metrics));
  const Outcome shorter = GoOn("run1", {"--epochs", "2"});
  EXPECT_EQ(shorter.exit_code, 2);
  EXPECT_THAT(shorter.log, HasSubstr("the run has done 54 steps, so it cannot end after 12"));
  EXPECT_EQ(Curve(Metrics("run1")), Curve(whole.metrics));
}

// The later checkpoints were removed, so the last line and the weights are of another end.
TEST_F(Resume, ARunThatNowEndsEarlier) {
  const std::vector<std::string> names{"model.safetensors", "best.safetensors"};
  const auto is_like = [&](const std::string& run) {
    for (const std::string& name : names) {
      const auto metadata = SafetensorsReader(Path(run) / name).header().metadata;
      const auto expected = SafetensorsReader(Path("run0") / name).header().metadata;
      for (const char* key : {"step", "weights_hash"}) {
        EXPECT_EQ(metadata.at(key), expected.at(key)) << name << " " << key;
      }
    }
  };
  std::vector<std::string> settings{"run.epochs=1", "checkpoint.every_steps=3",
                                    "checkpoint.keep_last=9"};
  const Outcome shorter = Succeeded(Launch(settings));
  settings[0] = "run.epochs=3";
  const Outcome longer = Succeeded(Launch(settings));
  fs::copy(Path("run1"), Path("copy"), fs::copy_options::recursive);
  for (const fs::path& one : Checkpoints("copy")) {
    if (one.filename() > "step-00000006-h") fs::remove_all(one);
  }
  const Outcome again = Succeeded(GoOn("copy", {"--epochs", "1"}));
  EXPECT_EQ(again.hash(), shorter.hash());
  EXPECT_EQ(Curve(again.metrics), Curve(shorter.metrics));
  is_like("copy");
  // Only the weights are.
  for (const std::string& name : names) {
    fs::copy_file(Path("run1") / name, Path("copy") / name, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(Succeeded(GoOn("copy")).hash(), shorter.hash());
  is_like("copy");
  EXPECT_THAT(Succeeded(GoOn("copy")).log, HasSubstr("is complete: nothing is left to do"));
}

// Its checkpoints were removed, but the run is not repeated.
TEST_F(Resume, ACompleteRunWithoutCheckpoints) {
  ASSERT_EQ(Launch({"run.epochs=1"}).exit_code, 0);
  fs::remove_all(Path("run0/checkpoints"));
  const auto metrics = Slurp(Path("run0/metrics.jsonl"));
  const std::vector<std::string> automatic{
      "launch",       Path("tiny.txtpb"), "--data",     Path("data"), "--set",
      "run.epochs=1", "--run-dir",        Path("run0"), "--resume",   "auto"};
  for (const Outcome& again : {GoOn("run0"), Muster(automatic, "run0")}) {
    EXPECT_EQ(again.exit_code, 0) << again.log;
    EXPECT_THAT(again.log,
                AllOf(HasSubstr("is complete: nothing is left to do. It has no checkpoint"),
                      HasSubstr("--initial-weights")));
  }
  EXPECT_EQ(Slurp(Path("run0/metrics.jsonl")), metrics);
  EXPECT_FALSE(fs::exists(Path("run0/attempt-1")));
  EXPECT_EQ(GoOn("run0", {"--epochs", "2"}).exit_code, 3);
  fs::resize_file(Path("run0/model.safetensors"), 100);
  EXPECT_EQ(GoOn("run0").exit_code, 3);
}

TEST_F(Resume, WhatCannotBe) {
  ASSERT_EQ(Launch({"run.epochs=3", "learning_rate.type=COSINE"}).exit_code, 0);
  const auto refuses = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const Outcome outcome = GoOn("run0", arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.log, HasSubstr(why));
  };
  refuses({"--epochs", "9"},
          "with learning_rate.type=COSINE the learning rate of every step depends on it");
  refuses({"--seed", "9"}, "run.seed was 1 and is now 9");
  refuses({"--workers", "5"}, "--workers 4 or fewer");
  refuses({"--repeat", "2"}, "expected one of");
}

// Errors name the intended directory, and no files are left in it.
TEST_F(Resume, AnotherDirectoryThanTheRuns) {
  const Outcome run =
      Succeeded(Launch({"run.epochs=2", "checkpoint.every_steps=5", "checkpoint.keep_last=9"}));
  const auto refuses = [&](const fs::path& given, int code, const std::string& why) {
    const Outcome outcome = Muster({"launch", "--resume", given});
    EXPECT_EQ(outcome.exit_code, code) << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr(why));
    EXPECT_FALSE(fs::exists(given / ".launcher.lock"));
  };
  const std::string right = "--resume " + Path("run0").string();
  refuses(Path("run0") / "checkpoints", 2, right);
  refuses(Path("run0") / "checkpoints" / "step-00000005-g1", 2, right);
  refuses(Path("nowhere"), 2, "found nothing");
  // Without a checkpoint the exit code is that for data, as if all were damaged.
  fs::create_directory(Path("empty"));
  refuses(Path("empty"), 3, "holds no checkpoint");
  fs::create_directories(Path("series") / "seed-1");
  std::ofstream(Path("series") / "repeat.json") << "{}";
  refuses(Path("series"), 2, "is a series (--repeat)");
  // Resuming from an older checkpoint, as described in CHECKPOINTS.md.
  fs::copy(Path("run0"), Path("copy"), fs::copy_options::recursive);
  for (const fs::path& one : Checkpoints("copy")) {
    if (one.filename() > "step-00000005-g1") fs::remove_all(one);
  }
  const Outcome again = Succeeded(GoOn("copy"));
  EXPECT_EQ(again.hash(), run.hash());
  EXPECT_EQ(Curve(again.metrics), Curve(run.metrics));
}

TEST_F(Resume, ARunThatWasMovedWithItsData) {
  fs::create_directory(Path("old"));
  fs::copy(Path("data"), Path("old") / "data", fs::copy_options::recursive);
  const auto launch = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"launch"};
    words.insert(words.end(), more.begin(), more.end());
    return Muster(words);
  };
  const std::string old = Path("old") / "run", now = Path("new") / "run";
  ASSERT_EQ(launch({Path("tiny.txtpb"), "--data", Path("old") / "data", "--run-dir", old,
                    "--epochs", "2"})
                .exit_code,
            0);
  fs::rename(Path("old"), Path("new"));
  // Its config can repeat the run. It neither uses nor creates files in the old place.
  const std::string gone = Path("old") / "data";
  const std::string config = now + "/config.txtpb";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{config}, {"--resume", now, "--epochs", "3"}}) {
    const Outcome missing = launch(command);
    EXPECT_EQ(missing.exit_code, 3) << missing.log;
    EXPECT_THAT(missing.log, HasSubstr(gone));
  }
  EXPECT_THAT(Muster({"eval", now}).log, HasSubstr(gone));
  EXPECT_THAT(Muster({"predict", now, "--samples", "0"}).log, HasSubstr(gone));
  const Outcome dry = Succeeded(launch({config, "--dry-run", "--data", Path("new") / "data"}));
  EXPECT_THAT(dry.log, Not(HasSubstr(old)));
  fs::copy(Path("new"), Path("old"), fs::copy_options::recursive);  // the copy's config names it
  EXPECT_EQ(launch({config, "--dry-run"}).exit_code, 0);
  const Outcome more = Succeeded(launch({"--resume", now, "--epochs", "3"}));
  EXPECT_THAT(more.log, Not(HasSubstr(old)));
}

// A file blocks the folder of checkpoints. Training continues, because it is worth more.
TEST_F(Resume, ADiskThatTakesNoCheckpointEndsNoTraining) {
  const Outcome whole = Launch({"run.epochs=4"});
  fs::create_directory(Path("run"));
  std::ofstream(Path("run") / "checkpoints") << "in the way";
  const auto job = Start("run", {"run.epochs=4"});
  EXPECT_EQ(job->Wait(60), 1);
  const auto last = Metrics("run").back();
  EXPECT_EQ(last["weights_hash"], whole.hash());
  EXPECT_EQ(last["reason"], "completed");
  EXPECT_EQ(last["step"], whole.metrics.back()["step"]);
  EXPECT_THAT(job->Log(), AllOf(HasSubstr("Warning: could not save the checkpoint of step 0: "),
                                HasSubstr("--run-dir DIR")));
}

TEST_F(Resume, WeightsThatCouldNotBeWrittenAreWrittenWhenItIsResumed) {
  const std::vector<std::string> settings{"run.epochs=2", "optimizer.ema_decay=0.9"};
  const Outcome whole = Launch(settings);
  const std::vector<std::string> names{"model.safetensors", "model-ema.safetensors",
                                       "best.safetensors"};
  for (const std::string& name : names) fs::create_directories(Path("run") / name / "in the way");
  const auto job = Start("run", settings);
  EXPECT_EQ(job->Wait(60), 1);
  EXPECT_EQ(Metrics("run").back()["reason"], "completed");
  EXPECT_EQ(Metrics("run").back().value("models", nlohmann::json::array()).size(), 0u);
  EXPECT_THAT(job->Log(), AllOf(HasSubstr("model.safetensors: cannot be"),
                                HasSubstr("model-ema.safetensors: cannot be"),
                                HasSubstr("best.safetensors: cannot be"),
                                HasSubstr("muster launch --resume " + Path("run").string())));
  for (const std::string& name : names) fs::remove_all(Path("run") / name);
  const Outcome resumed = Succeeded(GoOn("run"));
  for (const std::string& name : names) {
    const auto metadata = SafetensorsReader(Path("run") / name).header().metadata;
    const auto expected = SafetensorsReader(Path("run0") / name).header().metadata;
    for (const char* const key : {"weights_hash", "step", "test_accuracy"}) {
      ASSERT_EQ(metadata.count(key), expected.count(key)) << name << key;
      if (!expected.contains(key)) continue;
      EXPECT_EQ(metadata.at(key), expected.at(key)) << name << key;
    }
  }
}

TEST_F(Resume, NoneAreWrittenWhereNoneAreWanted) {
  const Outcome outcome = Launch({"checkpoint.keep_last=0"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_FALSE(fs::exists(Path("run0") / "checkpoints"));
  EXPECT_THAT(outcome.log, Not(HasSubstr("checkpoint ")));
}

}  // namespace resume_test
}  // namespace muster::testing
