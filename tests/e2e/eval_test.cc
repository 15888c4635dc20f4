// Evaluates the weights of a finished run, from any file, on any number of workers: the digits
// equal those that the run reported. Also predicts single samples.
#include <gmock/gmock-matchers.h>
#include <gmock/gmock-more-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>

#include "common/base/error.h"
#include "common/tensors/safetensors_reader.h"
#include "common/tensors/safetensors_writer.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kTestImages = 40;  // of the tiny data set

// All files below a directory, with their modification times.
std::map<std::string, fs::file_time_type> FilesIn(const fs::path& directory) {
  std::map<std::string, fs::file_time_type> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    files[entry.path()] = fs::last_write_time(entry.path());
  }
  return files;
}

// The worker of this process with its config in memory, or -1.
pid_t WorkerOf(const Process& process) {
  const std::string held =
      "--config" + std::string(1, '\0') + "/proc/" + std::to_string(process.pid()) + "/fd/";
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (Slurp(entry.path() / "cmdline").find(held) != std::string::npos) return std::stoi(pid);
  }
  return -1;
}

class Evaluate : public RealJob {
 protected:
  Evaluate() { fs::create_directory(Path("tmp")); }

  // Runs `muster eval` or `muster predict` and parses its JSON.
  Json Ask(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    arguments.insert(arguments.begin(), "muster");
    Process process(arguments, Path("ask.log"), {.environment = {{"TMPDIR", Path("tmp")}}});
    EXPECT_EQ(process.Wait(60), 0) << process.Log();
    EXPECT_THAT(FilesIn(Path("tmp")), IsEmpty());
    Json json = Json::parse(process.Log(), nullptr, false);
    EXPECT_TRUE(json.is_object()) << process.Log();
    return json;
  }
  // The line of metrics.jsonl for the evaluation at this step.
  Json Reported(const std::string& run, int64_t step) const {
    for (const Json& line : Metrics(run)) {
      if (line["step"] == step && line.contains("test_loss") && !line.contains("final"))
        return line;
    }
    ADD_FAILURE() << "no evaluation of step " << step;
    return {};
  }
  void ExpectSame(const Json& got, const Json& reported) {
    EXPECT_EQ(got["test_accuracy"].get<double>(), reported["test_accuracy"].get<double>());
    EXPECT_EQ(got["test_loss"].get<double>(), reported["test_loss"].get<double>());
    EXPECT_EQ(got["same_as_reported"], true) << got.dump();
    EXPECT_EQ(got["test_images"], kTestImages);
  }
  // Starts a `muster eval` of run0 that does not end by itself.
  std::unique_ptr<Process> EvaluateForEver() const {
    return std::make_unique<Process>(
        std::vector<std::string>{"muster", "eval", Path("run0"), "--set", "data.format=SYNTHETIC",
                                 "--set", "data.synthetic={test_samples: 16000000}"},
        Path("eval.log"), ProcessOptions{.environment = {{"TMPDIR", Path("tmp")}}});
  }
  void WriteNan(const std::string& file) const {
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    const float nan = NAN;
    const auto begin = static_cast<std::streamoff>(SafetensorsReader(file).header().data_begin);
    // The changed file must have no hash.
    std::string header(static_cast<size_t>(begin), '\0');
    stream.read(header.data(), begin);
    header[header.find("contents_hash")] = 'X';
    stream.seekp(0).write(header.data(), begin);
    stream.write(reinterpret_cast<const char*>(&nan), sizeof nan);
  }
};

TEST_F(Evaluate, APageHasTheSurestMistakes) {
  Succeeded(Launch({"run.epochs=3"}));
  const Json single = Ask({"predict", Path("run0"), "--samples", "0-39", "--top", "1"});
  std::vector<std::pair<double, int64_t>> wrong;
  for (const Json& one : single["samples"]) {
    if (one["top"][0]["class"] != one["label"]["class"])
      wrong.emplace_back(-one["top"][0]["probability"].get<double>(), one["sample"]);
  }
  std::ranges::sort(wrong);
  wrong.resize(std::min(wrong.size(), size_t{24}));
  ASSERT_GT(wrong.size(), 3u);
  ExpectSame(Ask({"eval", Path("run0"), "--workers", "3", "--html", Path("page.html")}),
             Reported("run0", 18));
  const std::string page = Slurp(Path("page.html"));
  size_t at = 0;
  for (const auto& [negative, sample] : wrong) {
    at = page.find("\"sample " + std::to_string(sample) + "\" src=\"data:image/png;base64,", at);
    ASSERT_NE(at, std::string::npos) << sample;
  }
  EXPECT_THAT(page, AllOf(HasSubstr("data:image/svg+xml;base64,"), HasSubstr("--workers 3 --html"),
                          HasSubstr(Metrics("run0").back()["weights_hash"].get<std::string>())));
  ExpectRefused({"eval", Path("run0"), "--html", Path("no") / "page.html"}, ExitCode::kFailure,
                "page.html");
}

TEST_F(Evaluate, TheDigitsOfTheRunOnAnyNumberOfWorkers) {
  // The running statistics of a batch norm count as weights.
  const Outcome run = Succeeded(Launch({"run.epochs=3", "model.layer[norm].batch_norm={}"}));
  const Json reported = Reported("run0", 18);
  const auto before = FilesIn(Path("run0"));
  for (const std::string workers : {"1", "2", "3"}) {
    for (const fs::path& from :
         {Path("run0"), Path("run0") / "model.safetensors", Checkpoints("run0").back()}) {
      const Json got = Ask({"eval", from, "--workers", workers});
      ExpectSame(got, reported);
      EXPECT_EQ(got["step"], 18);
      EXPECT_EQ(got["workers"], std::stoi(workers));
    }
  }
  EXPECT_EQ(FilesIn(Path("run0")), before);
  EXPECT_TRUE(NothingLeft(10));
  // The text output.
  const Outcome words = Muster({"eval", Path("run0"), "--workers", "1"});
  EXPECT_THAT(words.log, AllOf(HasSubstr("model.safetensors, step 18"), HasSubstr("40 test images"),
                               HasSubstr("run's result   identical")));
}

TEST_F(Evaluate, TheAverageAndTheWeightsThemselvesAfterEveryStep) {
  const Outcome run = Succeeded(
      Launch({"run.epochs=1", "evaluation.every_steps=1", "optimizer.ema_decay=0.9",
              "evaluation.use_ema=true", "checkpoint.every_steps=1", "checkpoint.keep_last=50",
              "cluster.wire_dtype=BF16", "cluster.transport=TCP"}));
  const int64_t best = Metrics("run0").back()["best_step"];
  const Json got = Ask({"eval", Path("run0"), "--best", "--workers", "2"});
  ExpectSame(got, Reported("run0", best));
  EXPECT_EQ(got["average"], true);
  for (const fs::path& checkpoint : Checkpoints("run0")) {
    const Json one = Ask({"eval", checkpoint, "--workers", "1"});
    if (one["step"] == 0) continue;  // the run does not evaluate step 0
    ExpectSame(one, Reported("run0", one["step"]));
  }
  for (const fs::path& from : {Path("run0"), Checkpoints("run0").back()}) {
    const Json raw = Ask({"eval", from, "--raw", "--workers", "1"});
    EXPECT_EQ(raw["average"], false);
    EXPECT_TRUE(raw["reported"].is_null());
    EXPECT_NE(raw["test_loss"], Reported("run0", 6)["test_loss"]);
  }
}

TEST_F(Evaluate, MirrorImagesCountOnAnyNumberOfWorkers) {
  for (const char* workers : {"cluster.workers=1", "cluster.workers=3"}) {
    const Outcome run =
        Succeeded(Launch({"run.epochs=2", "evaluation.flip=true", "evaluation.batch=7", workers}));
  }
  const Json reported = Reported("run0", 12);
  EXPECT_EQ(Reported("run1", 12)["test_loss"], reported["test_loss"]);
  EXPECT_EQ(Reported("run1", 12)["test_accuracy"], reported["test_accuracy"]);
  for (const std::string workers : {"1", "2"}) {
    ExpectSame(Ask({"eval", Path("run1"), "--workers", workers}), reported);
  }
  const Json predicted = Ask({"predict", Path("run0"), "--samples", "0-39"});
  EXPECT_EQ(static_cast<double>(predicted["right"].get<int64_t>()) / kTestImages,
            reported["test_accuracy"].get<double>());
  const Json plain = Ask({"eval", Path("run0"), "--set", "evaluation.flip=false"});
  EXPECT_NE(plain["test_loss"], reported["test_loss"]);
}

TEST_F(Evaluate, PredictionsAreThoseOfTheEvaluation) {
  const Outcome run = Succeeded(Launch({"run.epochs=4", "evaluation.confusion_matrix=true"}));
  const Json all = Ask({"eval", Path("run0"), "--confusion-csv", Path("counts.csv")});
  EXPECT_EQ(Slurp(Path("counts.csv")), Slurp(Path("run0") / "confusion_matrix.csv"));
  const Json predicted = Ask({"predict", Path("run0"), "--samples", "0-39", "--top", "10"});
  ASSERT_EQ(predicted["samples"].size(), kTestImages);
  std::vector<std::vector<int64_t>> counts(10, std::vector<int64_t>(10));
  for (const Json& one : predicted["samples"]) {
    const Json& top = one["top"];
    ++counts[one["label"]["class"].get<size_t>()][top[0]["class"].get<size_t>()];
    EXPECT_EQ(one["right"], one["label"]["class"] == top[0]["class"]);
    double sum = 0;
    for (const Json& candidate : top) sum += candidate["probability"].get<double>();
    EXPECT_NEAR(sum, 1, 1e-12);
    EXPECT_GE(top[0]["probability"], top[1]["probability"]);
  }
  EXPECT_EQ(all["confusion_matrix"], Json(counts));
  EXPECT_EQ(static_cast<double>(predicted["right"].get<int64_t>()) / kTestImages,
            all["test_accuracy"].get<double>());
  // A sample's prediction does not depend on the others. The order is that of the request.
  const Json some = Ask({"predict", Path("run0"), "--samples", "33,2-3,33", "--top", "10"});
  ASSERT_EQ(some["samples"].size(), 3u);
  EXPECT_EQ(some["samples"][0], predicted["samples"][33]);
  EXPECT_EQ(some["samples"][2], predicted["samples"][3]);
  EXPECT_EQ(Ask({"predict", Path("run0"), "--samples", "59", "--training-set"})["set"], "training");
  const Outcome words = Muster({"predict", Path("run0"), "--samples", "0-39"});
  EXPECT_THAT(words.log, HasSubstr("40 samples of the test set, "));
  EXPECT_THAT(Muster({"eval", Path("run0"), "--confusion"}).log, HasSubstr("recall"));
}

TEST_F(Evaluate, ARunUnderWayIsReadAndGoesOn) {
  const auto process =
      Start("run", {"run.epochs=100000", "checkpoint.every_steps=2", "evaluation.every_steps=5"});
  ASSERT_TRUE(Reaches("run", 10));
  const Json got = Ask({"eval", Path("run"), "--workers", "1"});
  EXPECT_THAT(got["model"].get<std::string>(), HasSubstr("checkpoints/step-"));
  EXPECT_EQ(Ask({"eval", Path("run"), "--best", "--workers", "1"})["same_as_reported"], true);
  EXPECT_EQ(Ask({"predict", Path("run"), "--samples", "0"})["samples"].size(), 1u);
  EXPECT_THAT(Muster({"inspect", Path("run")}).log, HasSubstr("run              running, "));
  const int64_t now = Metrics("run").back()["step"];
  EXPECT_TRUE(Reaches("run", now + 5));
  EXPECT_EQ(process->EndBy(SIGTERM, 20), 143);
  // The model file holds the weights of the last step.
  EXPECT_THAT(Ask({"eval", Path("run"), "--workers", "1"})["model"].get<std::string>(),
              HasSubstr("model.safetensors"));
}

TEST_F(Evaluate, AnInterruptLeavesNothing) {
  ASSERT_EQ(Launch({"run.steps=2"}).exit_code, 0);
  for (const bool stopped : {false, true}) {
    const auto process = EvaluateForEver();
    pid_t worker = -1;
    ASSERT_TRUE(Eventually(30, [&] { return (worker = WorkerOf(*process)) > 0; }))
        << process->Log();
    if (stopped) ::kill(worker, SIGSTOP);
    EXPECT_EQ(process->EndBy(SIGINT, 20), 130) << process->Log();
    EXPECT_THAT(process->Log(), HasSubstr("stopped by SIGINT before there was a result"));
    EXPECT_EQ(::kill(worker, 0), -1);
  }
  EXPECT_THAT(FilesIn(Path("tmp")), IsEmpty());
  EXPECT_TRUE(NothingLeft(10));
}

TEST_F(Evaluate, AWorkerThatIsKilledIsNamed) {
  ASSERT_EQ(Launch({"run.steps=2"}).exit_code, 0);
  const auto process = EvaluateForEver();
  pid_t worker = -1;
  ASSERT_TRUE(Eventually(30, [&] { return (worker = WorkerOf(*process)) > 0; })) << process->Log();
  ::kill(worker, SIGKILL);
  EXPECT_EQ(process->Wait(20), Code(ExitCode::kProcessDied));
  EXPECT_THAT(process->Log(), HasSubstr("muster-worker was killed by signal 9"));
}

TEST_F(Evaluate, WhatCannotBe) {
  ASSERT_EQ(Launch({"run.steps=3"}).exit_code, 0);
  const std::string run = Path("run0"), file = Path("run0") / "model.safetensors";
  ExpectRefused({"eval", run, "--data", Path("nowhere")}, ExitCode::kData, "no CIFAR-10 data set");
  ExpectRefused({"eval", run, "--set", "model.layer[hidden].dense.units=24"}, ExitCode::kData,
                "hidden.weight is [16,288] in the file, and [24,288] in the network");
  ExpectRefused({"eval", run, "--ema"}, ExitCode::kUsage, "is not a moving average");
  for (const char* setting :
       {"optimizer.momentum=0.5", "run.global_batch=8", "data.class_weights=[]",
        "evaluation.use_ema=true", "data.preprocess.flip=true"}) {
    ExpectRefused({"eval", run, "--set", setting}, ExitCode::kUsage, setting);
  }
  ExpectRefused({"eval", run, "--set", "data.preprocess.crop_width=100"}, ExitCode::kUsage,
                "model.safetensors (config)");
  ExpectRefused({"eval", run, "--worker", "2"}, ExitCode::kUsage, "did you mean '--workers'?");
  ExpectRefused({"eval", file, "--best"}, ExitCode::kUsage, "is a file; expected a run directory");
  ExpectRefused({"eval", Path("data")}, ExitCode::kUsage, "expected the directory of a run");
  ExpectRefused({"eval", Path("nowhere")}, ExitCode::kData, "cannot be read");
  ExpectRefused({"eval", run, "--confusion-csv", Path("no") / "counts.csv"}, ExitCode::kFailure,
                "counts.csv");
  ExpectRefused({"predict", run, "--samples", "40"}, ExitCode::kUsage,
                "numbers from 0 to 39, got 40");
  ExpectRefused({"predict", run, "--samples", "3-x"}, ExitCode::kUsage, "as in 0-9,17");
  ExpectRefused({"predict", run}, ExitCode::kUsage, "expected images, or --samples");
  ExpectRefused({"predict", run, "photo.jpg"}, ExitCode::kUsage, "data.format IMAGE_FOLDER");
  // A test set whose size differs from the file's is rejected before anything starts.
  fs::copy(Path("data"), Path("cut"), fs::copy_options::recursive);
  for (const auto& entry : fs::recursive_directory_iterator(Path("cut"))) {
    if (entry.path().filename() == "test_batch.bin") fs::resize_file(entry.path(), 5000);
  }
  ExpectRefused({"eval", run, "--data", Path("cut")}, ExitCode::kData, "test_batch.bin");
  // A file of another program has no config; then one is given.
  const SafetensorsReader ours(file);
  const std::string bare = Path("bare.safetensors");
  {
    SafetensorsWriter writer(bare, LayOutSafetensors(ours.header().tensors, {}));
    for (const StoredTensor& tensor : ours.header().tensors) {
      std::vector<std::byte> bytes(tensor.bytes());
      ours.ReadBytes(tensor, bytes);
      writer.Write(bytes);
    }
    writer.Commit();
  }
  ExpectRefused({"eval", bare}, ExitCode::kUsage, "give its config (--config CONFIG)");
  const Json got = Ask({"eval", bare, "--config", Path("tiny.txtpb"), "--data", Path("data")});
  EXPECT_EQ(got["test_loss"], Reported("run0", 3)["test_loss"]);
  WriteNan(bare);
  ExpectRefused({"eval", bare, "--config", Path("tiny.txtpb"), "--data", Path("data")},
                ExitCode::kData, "non-finite numbers: 1 of the 216 of conv.weight");
  EXPECT_TRUE(NothingLeft(10));
}

// An evaluation does not need the training data.
TEST_F(Evaluate, ANetworkMayHaveMoreClassesThanThereAreNames) {
  ASSERT_EQ(
      Launch({"run.steps=2", "model.layer[out].dense.units=12",
              "data.class_names=[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\"]"})
          .exit_code,
      0);
  EXPECT_EQ(Ask({"eval", Path("run0")})["classes"].size(), 12u);
}

TEST_F(Evaluate, TheTestSetIsEnough) {
  const Outcome run = Succeeded(Launch({"run.epochs=3"}));
  const Json all = Ask({"predict", Path("run0"), "--samples", "0-39", "--top", "10"});
  for (int file = 1; file <= 5; ++file) {
    fs::remove(Path("data") / ("data_batch_" + std::to_string(file) + ".bin"));
  }
  for (const std::string workers : {"1", "3"}) {
    ExpectSame(Ask({"eval", Path("run0"), "--workers", workers}), Reported("run0", 18));
  }
  EXPECT_EQ(Ask({"predict", Path("run0"), "--samples", "0-39", "--top", "10"}), all);
  ExpectRefused({"predict", Path("run0"), "--samples", "0", "--training-set"}, ExitCode::kData,
                "data_batch_1.bin");
  ExpectRefused({"launch", Path("tiny.txtpb"), "--data", Path("data")}, ExitCode::kData,
                "data_batch_1.bin");
  // Fewer images than workers.
  fs::resize_file(Path("data") / "test_batch.bin", 2 * 3073);
  EXPECT_EQ(Ask({"eval", Path("run0"), "--workers", "3"})["test_images"], 2);
  fs::remove(Path("data") / "test_batch.bin");
  ExpectRefused({"eval", Path("run0")}, ExitCode::kData, "test_batch.bin");
}

TEST_F(Evaluate, ACheckpointIsExportedAndInspected) {
  const Outcome run = Succeeded(Launch({"run.steps=4", "optimizer.ema_decay=0.9"}));
  const std::string checkpoint = Checkpoints("run0").back();
  const auto exported = [&](const std::vector<std::string>& more, const std::string& file) {
    std::vector<std::string> arguments{"export",  checkpoint, Path("out.safetensors"),
                                       "--force", "--format", "safetensors"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = Succeeded(Muster(arguments));
    EXPECT_THAT(outcome.log, HasSubstr(checkpoint));
    const SafetensorsReader a(Path("out.safetensors")), b(Path("run0") / file);
    ASSERT_EQ(a.header().tensors.size(), b.header().tensors.size());
    EXPECT_EQ(a.header().metadata.at("weights_hash"), b.header().metadata.at("weights_hash"));
    for (const StoredTensor& tensor : b.header().tensors) {
      std::vector<std::byte> left(tensor.bytes()), right(tensor.bytes());
      const StoredTensor* const other = a.header().Find(tensor.name);
      ASSERT_NE(other, nullptr) << tensor.name;
      ASSERT_EQ(other->bytes(), tensor.bytes());
      a.ReadBytes(*other, left);
      b.ReadBytes(tensor, right);
      EXPECT_EQ(left, right) << tensor.name;
    }
  };
  exported({}, "model.safetensors");
  exported({"--ema"}, "model-ema.safetensors");
  EXPECT_EQ(Muster({"export", checkpoint, "--format", "onnx", Path("out.onnx")}).exit_code, 0);
  EXPECT_THAT(Muster({"inspect", checkpoint + "/"}).log,
              AllOf(HasSubstr("optimizer_state_0.conv/weights"), HasSubstr("average.conv/weights"),
                    HasSubstr("step             4 of 4"), HasSubstr("checksums        correct")));
  // The path may differ, and a link may even be in another run's directory.
  fs::create_directories(Path("other/checkpoints"));
  std::ofstream(Path("other/checkpoints/run_id")) << std::string(32, 'a');
  fs::create_directory_symlink(checkpoint, Path("other/checkpoints/latest"));
  for (const std::string& path :
       {Path("other/checkpoints/latest").string(), checkpoint + "/.", checkpoint + "/../../."}) {
    const Outcome evaluated = Succeeded(Muster({"eval", path}));
    EXPECT_THAT(evaluated.log, HasSubstr("identical")) << path;
  }
  EXPECT_THAT(Muster({"eval", Path("run0/checkpoints/.")}).log,
              HasSubstr("expected the directory of a run"));
  EXPECT_THAT(Muster({"inspect", checkpoint, "--ema"}).log,
              AllOf(HasSubstr("conv.weight"), HasSubstr("weights          average"),
                    HasSubstr("to show it: muster inspect " + checkpoint + " --config")));
  EXPECT_THAT(Muster({"inspect", checkpoint, "--config"}).log, HasSubstr("global_batch: 50"));
  EXPECT_THAT(Muster({"inspect", Path("run0")}).log,
              AllOf(HasSubstr("run              completed, 4 steps"),
                    HasSubstr("model-ema.safetensors: step 4, the moving average"),
                    HasSubstr("checkpoint       checkpoints/step-00000004-g1"),
                    HasSubstr("hidden.weight")));
  // Damage is reported by every command.
  fs::resize_file(fs::path(checkpoint) / "tensors.safetensors", 5000);
  for (const char* const command : {"inspect", "eval"}) {
    ExpectRefused({command, checkpoint}, ExitCode::kData, "tensors.safetensors");
  }
}

}  // namespace
}  // namespace muster::testing
