// Runs whose files are damaged, belong to another run, or are complete. Errors name the cause,
// nothing is destroyed, and damage that can be repaired is repaired.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "common/tensors/safetensors_reader.h"
#include "tests/e2e/real_job.h"
#include "tests/ps/tensorboard/event_reader.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void Flip(const fs::path& path, int64_t from_end) {
  std::string bytes = Slurp(path);
  char& byte = bytes[bytes.size() - static_cast<size_t>(from_end)];
  byte = static_cast<char>(byte ^ 0x40);
  std::ofstream(path, std::ios::binary) << bytes;
}

// The contents of a run's directory, except the records of who used it last.
std::map<std::string, std::string> Contents(const fs::path& dir) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file() || entry.path().extension() == ".lock") continue;
    contents[entry.path().lexically_relative(dir)] = Slurp(entry.path());
  }
  return contents;
}

// The steps of a scalar in a run's event files, in file order.
std::vector<int64_t> EventSteps(const fs::path& dir, const std::string& tag) {
  std::set<fs::path> files;  // a resumed server starts another file, with a later name
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().filename().string().starts_with("events.out.")) files.insert(entry.path());
  }
  std::vector<int64_t> steps;
  for (const fs::path& file : files) {
    for (const TaggedValue& value : ValuesOf(ReadEventFile(file), tag)) {
      steps.push_back(value.step);
    }
  }
  return steps;
}

class Damage : public RealJob {
 protected:
  Outcome Export(const std::string& from, const std::vector<std::string>& more) {
    std::vector<std::string> words{"export", Path(from), "--format", "safetensors"};
    words.insert(words.end(), more.begin(), more.end());
    return Muster(words);
  }
  static std::string HashOf(const fs::path& file) {
    return SafetensorsReader(file).header().metadata.at("weights_hash");
  }
};

const std::vector<std::string> kShort{"run.epochs=4", "evaluation.every_steps=6",
                                      "evaluation.every_epochs=0", "optimizer.ema_decay=0.9",
                                      "run.log_every_steps=2"};

TEST_F(Damage, OfAFileOfWeightsIsNamedByEveryReader) {
  ASSERT_EQ(Launch(kShort).exit_code, 0);
  const std::string model = Path("run0/model.safetensors");
  // A copy outside of the run directory, so that nothing can replace it.
  const std::string alone = Path("alone.safetensors");
  fs::copy_file(model, alone);
  Flip(model, 5);
  Flip(alone, 5);
  Flip(Path("run0/best.safetensors"), 5);
  Flip(Path("run0/model-ema.safetensors"), 5);
  const std::string out = Path("out.safetensors");
  const std::vector<std::vector<std::string>> commands{
      {"inspect", alone},
      {"inspect", Path("run0")},
      {"export", alone, "--format", "npz", out},
      {"export", Path("run0"), "--format", "onnx", out},
      {"export", Path("run0"), "--best", "--format", "safetensors", out},
      {"export", Path("run0"), "--ema", "--format", "safetensors", out},
      {"import", alone, "--config", Path("tiny.txtpb"), out},
      {"eval", alone, "--data", Path("data")},
      {"eval", Path("run0"), "--best"},
      {"predict", alone, "--data", Path("data"), "--samples", "0"},
      {"launch", Path("tiny.txtpb"), "--data", Path("data"), "--run-dir", Path("tuned"),
       "--initial-weights", alone}};
  for (const auto& command : commands) {
    const Outcome outcome = Muster(command);
    EXPECT_EQ(outcome.exit_code, 3) << command[0] << " " << command[1] << outcome.log;
    EXPECT_THAT(outcome.log,
                AllOf(HasSubstr(".safetensors: is damaged"), HasSubstr("contents_hash")))
        << command[0];
  }
  EXPECT_FALSE(fs::exists(out));
  EXPECT_FALSE(fs::exists(Path("tuned/metrics.jsonl")));
  EXPECT_THAT(Muster({"inspect", alone}).log, HasSubstr("use another copy"));
  // It is no config, whatever its name and its first bytes.
  const std::string bytes = Slurp(alone);
  std::ofstream(Path("alone"), std::ios::binary) << std::string(8, 'x') + bytes.substr(8);
  EXPECT_EQ(Muster({"inspect", Path("alone")}).exit_code, 3);
  const Outcome run = Muster({"inspect", Path("run0")});
  EXPECT_THAT(run.log, HasSubstr("write it again with muster launch --resume RUN_DIR"));
  // The rest of the run is still described.
  EXPECT_THAT(run.log, AllOf(HasSubstr("  run              completed, "),
                             HasSubstr("best.safetensors: unusable: "),
                             HasSubstr("  checkpoint       checkpoints/step-")));
}

TEST_F(Damage, OfTheBestWeightsIsMendedWhenTheRunGoesOn) {
  // The best step is the last one, which always has a checkpoint, or step 6, whose checkpoint is
  // removed.
  for (const bool kept : {true, false}) {
    std::vector<std::string> settings = kShort;
    settings.insert(settings.end(), {"learning_rate.base=0", kept ? "evaluation.every_steps=24"
                                                                  : "checkpoint.keep_last=1"});
    const Outcome run = Succeeded(Launch(settings));
    const std::string name = kept ? "run0" : "run3", best = Path(name) / "best.safetensors";
    const std::string hash = HashOf(best);
    Flip(best, 9);
    const Outcome longer = GoOn(name, {"--epochs", "5"});
    EXPECT_EQ(longer.exit_code, kept ? 0 : 1) << longer.log;
    EXPECT_THAT(longer.log, HasSubstr("best.safetensors: is damaged"));
    EXPECT_THAT(longer.log, HasSubstr(kept ? "rewriting it in" : "no file and no remaining"));
    const int inspected = Muster({"inspect", best}).exit_code;
    EXPECT_EQ(inspected, kept ? 0 : 3);
    if (kept) {
      EXPECT_EQ(HashOf(best), hash);
    }
  }
}

TEST_F(Damage, CheckpointsOfAnotherRunAreRefusedAndNothingIsChanged) {
  ASSERT_EQ(Launch(kShort).exit_code, 0);
  std::vector<std::string> other = kShort;
  other.emplace_back("run.seed=9");
  ASSERT_EQ(Launch(other).exit_code, 0);
  fs::remove_all(Path("run0/checkpoints"));
  fs::copy(Path("run1/checkpoints"), Path("run0/checkpoints"), fs::copy_options::recursive);
  const auto before = Contents(Path("run0"));
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--epochs", "9"}}) {
    const Outcome refused = GoOn("run0", more);
    EXPECT_EQ(refused.exit_code, 3) << refused.log;
    EXPECT_THAT(refused.log,
                AllOf(HasSubstr("its checkpoints belong to another run"),
                      HasSubstr(Slurp(Path("run0/run_id"))), HasSubstr(Slurp(Path("run1/run_id"))),
                      HasSubstr("begun in " + Path("run1").string())));
  }
  Process server({"muster-server", "--config", Path("run0") / "config.txtpb", "--resume"},
                 Path("server.log"), {.environment = {{"MUSTER_TOKEN", std::string(32, 'a')}}});
  EXPECT_EQ(server.Wait(30), 3) << server.Log();
  EXPECT_EQ(Contents(Path("run0")), before);
  // The same checkpoints can be resumed in a new directory.
  fs::create_directory(Path("fresh"));
  fs::copy(Path("run1/checkpoints"), Path("fresh/checkpoints"), fs::copy_options::recursive);
  EXPECT_EQ(GoOn("fresh", {"--epochs", "5"}).metrics.back()["steps"], 30);
}

TEST_F(Damage, ACompleteRunIsLeftAsItIs) {
  const Outcome whole = Succeeded(Launch(kShort));
  const auto before = Contents(Path("run0"));
  const Outcome again = Succeeded(GoOn("run0", {"--workers", "1"}));
  EXPECT_THAT(again.log, AllOf(HasSubstr("/run0 is complete: nothing is left to do (24 of 24"),
                               HasSubstr("/run0 --epochs N, with N above 4")));
  EXPECT_EQ(Contents(Path("run0")), before);
  // Damaged or missing files are restored from a checkpoint.
  const std::string hash = HashOf(Path("run0/model.safetensors"));
  Flip(Path("run0/model.safetensors"), 5);
  fs::remove(Path("run0/model-ema.safetensors"));
  const Outcome mended = Succeeded(GoOn("run0"));
  EXPECT_THAT(mended.log, AllOf(HasSubstr("model.safetensors: is damaged"),
                                HasSubstr("model-ema.safetensors: cannot be read"),
                                HasSubstr("restored it from step-00000024")));
  EXPECT_EQ(HashOf(Path("run0/model.safetensors")), hash);
  auto after = Contents(Path("run0"));
  EXPECT_EQ(HashOf(Path("run0/model-ema.safetensors")), [&] {
    std::ofstream(Path("ema")) << before.at("model-ema.safetensors");
    return HashOf(Path("ema"));
  }());
  for (const char* const file : {"model.safetensors", "model-ema.safetensors"}) after.erase(file);
  for (const auto& [file, bytes] : after) EXPECT_EQ(bytes, before.at(file)) << file;
}

TEST_F(Damage, LinesOfMetricsThatSomebodyTookComeBack) {
  const Outcome whole = Succeeded(Launch(kShort));
  const fs::path metrics = Path("run0/metrics.jsonl");
  const std::string before = Slurp(metrics);
  std::istringstream lines(before);
  std::string text, line;
  for (int i = 0; i < 3 && std::getline(lines, line); ++i) text += line + "\n";
  std::ofstream(metrics) << text << "{\"step\":8,\"tr";
  const Outcome rest = Succeeded(GoOn("run0", {"--epochs", "5"}));
  EXPECT_THAT(rest.log, HasSubstr("metrics.jsonl: the file was changed"));
  const size_t summary = before.rfind('\n', before.size() - 2) + 1;
  EXPECT_TRUE(Slurp(metrics).starts_with(before.substr(0, summary)));
  EXPECT_EQ(Slurp(Path("run0/metrics-cut.jsonl")), text + "{\"step\":8,\"tr");
  // The damage is reported once, and then repaired.
  const Outcome more = Succeeded(GoOn("run0", {"--epochs", "6"}));
  EXPECT_THAT(more.log, Not(HasSubstr("the file was changed")));
}

TEST_F(Damage, EventFilesHoldEveryStepOnceAfterAKill) {
  const std::vector<std::string> settings{"run.epochs=60", "run.log_every_steps=1",
                                          "evaluation.every_steps=7", "checkpoint.every_steps=20"};
  ASSERT_EQ(Launch(settings).exit_code, 0);
  const auto process = Start("run", settings);
  ASSERT_TRUE(Reaches("run", 45));
  KillAll("run", *process);
  const Outcome rest = Succeeded(GoOn("run"));
  EXPECT_EQ(EventSteps(Path("run0"), "loss/train").size(), 360u);
  for (const char* const tag : {"loss/train", "norm/gradient", "accuracy/test"}) {
    EXPECT_EQ(EventSteps(Path("run"), tag), EventSteps(Path("run0"), tag)) << tag;
  }
}

}  // namespace
}  // namespace muster::testing
