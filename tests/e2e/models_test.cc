// Weight files, passed between runs and through the commands.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "common/base/error.h"
#include "common/tensors/safetensors_reader.h"
#include "common/tensors/safetensors_writer.h"
#include "tests/cli/text/unwrapped.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WeightFiles : public RealJob {
 protected:
  // Does a short run and returns the hash. The weights are in run0.
  std::string Trained() {
    const Outcome first = Succeeded(Launch({"run.steps=5", "evaluation.skip_final=true"}));
    return first.hash();
  }
  std::string Weights() const { return Path("run0") / "model.safetensors"; }
  // Settings of a run that starts with these weights and does not change them.
  std::vector<std::string> Frozen(const std::string& weights) const {
    return {"run.initial_weights=" + weights, "run.steps=2", "learning_rate.base=0"};
  }
};

std::string BytesOf(const SafetensorsReader& file, const char* name) {
  const StoredTensor& tensor = *file.header().Find(name);
  std::string bytes(tensor.bytes(), '\0');
  file.ReadBytes(tensor, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST_F(WeightFiles, ARunStartsWhereAnotherEnded) {
  const std::string hash = Trained();
  const Outcome next = Succeeded(Launch(Frozen(Weights())));
  EXPECT_EQ(next.hash(), hash);
  EXPECT_THAT(Unwrapped(next.log),
              HasSubstr("weights from " + Weights() + " (step 5): 6 of 6 variables"));
  // Workers also start from them with 16 bits on the wire.
  std::vector<std::string> half = Frozen(Weights());
  half.push_back("cluster.wire_dtype=BF16");
  const Outcome rounded = Succeeded(Launch(half));
  EXPECT_EQ(rounded.hash(), hash);
  EXPECT_NEAR(rounded.metrics[0]["train_loss"].get<double>(),
              next.metrics[0]["train_loss"].get<double>(), 0.05);
  // The default initial weights are different.
  const Outcome other = Launch({"run.steps=2", "learning_rate.base=0"});
  EXPECT_NE(other.hash(), hash);
}

TEST_F(WeightFiles, WhatDoesNotFitStartsNothing) {
  Trained();
  std::vector<std::string> settings = Frozen(Weights());
  settings.push_back("model.layer[out].dense={ units: 10 use_bias: false }");
  settings.push_back("model.layer[hidden].dense.units=24");
  const Outcome refused = Launch(settings);
  EXPECT_EQ(refused.exit_code, Code(ExitCode::kData));
  EXPECT_THAT(refused.log,
              AllOf(HasSubstr("hidden.weight is [16,288] in the file, and [24,288] in the network"),
                    HasSubstr("out.bias [10] is in the file, but not in the network"),
                    Not(HasSubstr("Starting"))));
  EXPECT_FALSE(std::filesystem::exists(Path("run1")));
  std::vector<std::string> dry{"launch", Path("tiny.txtpb"), "--data", Path("data"), "--dry-run"};
  for (const std::string& setting : settings) dry.insert(dry.end(), {"--set", setting});
  ExpectRefused(dry, ExitCode::kData, "hidden.weight is [16,288] in the file");
  settings.push_back("run.skip_mismatched=true");
  const Outcome skipped = Succeeded(Launch(settings));
  EXPECT_THAT(Unwrapped(skipped.log),
              AllOf(HasSubstr("2 of 5 variables"), HasSubstr("skipped: hidden.weight"),
                    HasSubstr("skipped: out.bias")));
  settings.push_back("model.freeze=hidden");  // it would stay random
  EXPECT_EQ(Launch(settings).exit_code, Code(ExitCode::kUsage));
}

TEST_F(WeightFiles, WeightsThatAreNotFiniteAreRefused) {
  Trained();
  {
    const SafetensorsReader reader(Weights());
    std::fstream file(Weights(), std::ios::binary | std::ios::in | std::ios::out);
    const float values[] = {NAN, INFINITY};
    for (const auto& [name, count] : {std::pair("conv.weight", 1), std::pair("out.bias", 2)}) {
      file.seekp(static_cast<std::streamoff>(reader.header().data_begin +
                                             reader.header().Find(name)->begin));
      file.write(reinterpret_cast<const char*>(values), count * std::streamsize{sizeof(float)});
    }
    // The changed file must have no hashes.
    std::string header(reader.header().data_begin, '\0');
    file.seekg(0).read(header.data(), static_cast<std::streamsize>(header.size()));
    for (const char* const key : {"contents_hash", "weights_hash"}) header[header.find(key)] = 'X';
    file.seekp(0).write(header.data(), static_cast<std::streamsize>(header.size()));
  }
  const std::string what =
      "non-finite numbers: 1 of the 216 of conv.weight; 2 of the 10 of out.bias";
  const Outcome run = Launch(Frozen(Weights()));
  EXPECT_EQ(run.exit_code, Code(ExitCode::kData)) << run.log;
  EXPECT_THAT(run.log, AllOf(HasSubstr(what), Not(HasSubstr("Starting"))));
  EXPECT_FALSE(std::filesystem::exists(Path("run1")));  // the run must not have started
  EXPECT_THAT(Muster({"inspect", Weights()}).log,
              HasSubstr("not finite       1 of conv.weight, 2 of out.bias"));
  for (const char* format : {"safetensors", "npz", "onnx"}) {
    const std::string to = Path(std::string("as.") + format);
    const Outcome exported = Succeeded(Muster({"export", Weights(), "--format", format, to}));
    EXPECT_THAT(exported.log,
                HasSubstr("muster: warning: " + Weights() + " and " + to +
                          " contain numbers that are not finite: 1 of conv.weight, 2 of out.bias"));
  }
  const std::string out = Path("imported.safetensors"), config = Path("tiny.txtpb");
  const Outcome imported = Muster({"import", Weights(), "--config", config, out});
  EXPECT_EQ(imported.exit_code, Code(ExitCode::kData));
  EXPECT_THAT(imported.log, AllOf(HasSubstr(Weights() + ": "), HasSubstr(what)));
  EXPECT_FALSE(std::filesystem::exists(out));
  // Follows the advice in the message.
  Succeeded(Muster({"import", Weights(), "--config", config, "--skip-mismatched", "--map",
                    Write("names", "conv.weight -\nout.bias -\n"), out}));
  EXPECT_EQ(SafetensorsReader(out).header().tensors.size(), 4u);
}

// The checkpoint has the weights, so the file is no longer needed.
TEST_F(WeightFiles, ARunGoesOnWithoutTheFileThatItStartedFrom) {
  Trained();
  const Outcome run = Succeeded(Launch(Frozen(Weights())));
  std::filesystem::remove(Weights());
  const Outcome more = Succeeded(GoOn("run1", {"--steps", "4"}));
  EXPECT_EQ(more.hash(), run.hash());
}

TEST_F(WeightFiles, ImportRenamesAndSkips) {
  const std::string hash = Trained();
  // The same weights with another program's names, and an additional tensor.
  const SafetensorsReader ours(Weights());
  std::vector<StoredTensor> stored = ours.header().tensors;
  for (StoredTensor& tensor : stored) tensor.name = "backbone." + tensor.name;
  stored.push_back({.name = "extra.weight", .shape = {2}});
  const std::string theirs = Path("theirs.safetensors");
  {
    SafetensorsWriter writer(theirs, LayOutSafetensors(stored, {}));
    for (const StoredTensor& tensor : ours.header().tensors) {
      std::vector<std::byte> bytes(tensor.bytes());
      ours.ReadBytes(tensor, bytes);
      writer.Write(bytes);
    }
    writer.Write(std::vector<std::byte>(8));
    writer.Commit();
  }
  const std::string out = Path("imported.safetensors"), config = Path("tiny.txtpb"),
                    data = Path("data");
  const Outcome unnamed = Muster({"import", theirs, out, "--config", config});
  EXPECT_EQ(unnamed.exit_code, Code(ExitCode::kData));
  EXPECT_THAT(unnamed.log,
              AllOf(HasSubstr("it has none of the network's variables"), HasSubstr("--map")));
  EXPECT_FALSE(std::filesystem::exists(out));

  const std::string names = Write("names",
                                  "# theirs  ours\nbackbone.conv conv\nbackbone.hidden "
                                  "hidden\nbackbone.out out\nextra - # no use\n");
  const Outcome named = Succeeded(
      Muster({"import", theirs, "--config", config, "--data", data, "--map", names, out}));
  EXPECT_EQ(SafetensorsReader(out).header().tensors.size(), 6u);
  EXPECT_THAT(named.log, HasSubstr("muster launch " + config + " --set data.dir=" + data +
                                   " --initial-weights " + out));
  const Outcome run = Succeeded(Launch(Frozen(out)));
  EXPECT_EQ(run.hash(), hash);

  // Without the head, which is then initialized.
  const std::string fewer = Write("fewer", "backbone.conv conv\nbackbone.hidden hidden\n");
  const std::vector<std::string> without_head{"import", theirs,  out,   "--config",
                                              config,   "--map", fewer, "--skip-mismatched"};
  const Outcome refused = Muster(without_head);
  EXPECT_EQ(refused.exit_code, Code(ExitCode::kUsage));
  EXPECT_THAT(refused.log, HasSubstr(out + ": already exists"));
  EXPECT_NE(SafetensorsReader(out).header().Find("out.weight"), nullptr);
  const Outcome partly = Muster([&] {
    std::vector<std::string> words = without_head;
    words.emplace_back("--force");
    return words;
  }());
  ASSERT_EQ(partly.exit_code, 0) << partly.log;
  EXPECT_THAT(partly.log,
              AllOf(HasSubstr("out.weight [10,16] is missing"), HasSubstr("--skip-mismatched")));
  const SafetensorsReader file(out);
  EXPECT_EQ(file.header().tensors.size(), 4u);
  EXPECT_EQ(file.header().Find("out.weight"), nullptr);
  const Outcome head =
      Succeeded(Muster({"launch", config, "--data", Path("data"), "--run-dir", Path("head"),
                        "--initial-weights", out, "--skip-mismatched", "--steps", "2"}));
  EXPECT_THAT(head.log, HasSubstr("skipped: out.weight [10,16] is missing"));
}

TEST_F(WeightFiles, NamesThatCannotBeReadAreRefused) {
  Trained();
  for (const auto& [text, expected] :
       std::map<std::string, std::string>{{"one\n", "names:1: expected"},
                                          {"a b\nc d e\n", "names:2: expected"},
                                          {"a b\na c\n", "names:2: a occurs twice"},
                                          {"# nothing\n", "contains no names"}}) {
    const Outcome run = Muster({"import", Weights(), Path("out"), "--config", Path("tiny.txtpb"),
                                "--map", Write("names", text)});
    EXPECT_EQ(run.exit_code, Code(ExitCode::kUsage));
    EXPECT_THAT(run.log, HasSubstr(expected));
  }
}

TEST_F(WeightFiles, ExportSaysWhatItCannotDo) {
  Trained();
  const std::string out = Path("out");
  const auto refused = [&](std::vector<std::string> more, ExitCode code, const char* why) {
    more.insert(more.begin(), {"export", "--format"});
    more.push_back(out);
    const Outcome run = Muster(more);
    EXPECT_EQ(run.exit_code, Code(code)) << run.log;
    EXPECT_THAT(run.log, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(out)) << why;
  };
  const std::string run = Path("run0");
  refused({"onnx", run, "--ema"}, ExitCode::kUsage, "is not a moving average");
  refused({"onnx", run, "--best"}, ExitCode::kData, "best.safetensors: cannot be read");
  refused({"onnx", Weights(), "--best"}, ExitCode::kUsage, "expected a run directory");
  refused({"torch", run}, ExitCode::kUsage, "torch");
  refused({"npz", Path("nowhere")}, ExitCode::kData, "cannot be read");
  // A file without a model in its metadata.
  const std::string bare = Path("bare.safetensors");
  SafetensorsWriter writer(bare, LayOutSafetensors({{.name = "a", .shape = {1}}}, {}));
  writer.Write(std::vector<std::byte>(4));
  writer.Commit();
  refused({"onnx", bare}, ExitCode::kUsage, "the file does not describe its network");
  refused({"onnx", bare, "--config", Path("tiny.txtpb").string()}, ExitCode::kData,
          "it has none of the network's variables");
  // Devices are not overwritten.
  const Outcome device = Muster({"export", Weights(), "--format", "npz", "/dev/null"});
  EXPECT_EQ(device.exit_code, Code(ExitCode::kUsage)) << device.log;
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(WeightFiles, ExportedSafetensorsAreTheSame) {
  Trained();
  const std::string out = Path("copy.safetensors");
  const Outcome run = Succeeded(Muster({"export", Path("run0"), "--format", "safetensors", out}));
  std::ifstream a(Weights(), std::ios::binary), b(out, std::ios::binary);
  EXPECT_TRUE(
      std::equal(std::istreambuf_iterator<char>(a), {}, std::istreambuf_iterator<char>(b), {}));
  // Existing files are replaced only on request, and the error comes before any work.
  const std::string npz = Path("there.npz");
  std::ofstream(npz) << "work of a day";
  const Outcome refused = Muster({"export", Path("run0"), "--format", "npz", npz});
  EXPECT_EQ(refused.exit_code, Code(ExitCode::kUsage));
  EXPECT_THAT(refused.log, AllOf(HasSubstr(npz + ": already exists"), HasSubstr("--force")));
  EXPECT_EQ(std::filesystem::file_size(npz), 13u);
  EXPECT_EQ(Muster({"export", Path("run0"), "--format", "npz", npz, "--force"}).exit_code, 0);
  EXPECT_GT(std::filesystem::file_size(npz), 1000u);
}

TEST_F(WeightFiles, InspectShowsVariablesAndWhatIsFrozen) {
  const Outcome frozen = Succeeded(
      Launch({"run.steps=3", "model.layer[conv].conv2d.weights={ learning_rate_multiplier: 0 }",
              "model.layer[out].dense.bias={ learning_rate_multiplier: 2 }"}));
  const Outcome shown = Succeeded(Muster({"inspect", Path("run0")}));
  EXPECT_THAT(shown.log,
              AllOf(::testing::ContainsRegex("conv.weight +F32 +\\[8,3,3,3\\].* frozen"),
                    ::testing::ContainsRegex("out.bias +F32 +\\[10\\].* rate x 2"),
                    HasSubstr("step             3"), HasSubstr("not finite       none")));
  // The file contains the run's config.
  const Outcome config = Muster({"inspect", Weights(), "--config"});
  EXPECT_EQ(config.exit_code, 0);
  const std::string path = Write("again.txtpb", config.log);
  const Outcome described = Succeeded(Muster({"inspect", path}));
  EXPECT_THAT(described.log, ::testing::ContainsRegex("conv/weights.* frozen"));
  EXPECT_EQ(Muster({"inspect", Path("tiny.txtpb"), "--config"}).exit_code, Code(ExitCode::kUsage));
}

// All layers except the last keep weights and statistics, on any number of workers.
TEST_F(WeightFiles, FrozenLayersStay) {
  const std::string model =
      "model={ layer { name: 'conv' conv2d { filters: 8 kernel: 3 } } "
      "layer { name: 'bn' batch_norm {} } layer { name: 'relu' relu {} } "
      "layer { name: 'out' dense { units: 10 } } "
      "layer { name: 'loss' softmax_cross_entropy {} } }";
  Succeeded(Launch({model, "run.steps=3"}));
  std::vector<std::string> settings{model, "model.freeze=conv, bn", "run.steps=4",
                                    "run.initial_weights=" + Weights(), "cluster.workers=1"};
  const Outcome one = Succeeded(Launch(settings));
  settings.back() = "cluster.workers=2";
  EXPECT_EQ(Succeeded(Launch(settings)).hash(), one.hash());
  const SafetensorsReader before(Weights()), after(Path("run1") / "model.safetensors");
  for (const char* name : {"conv.weight", "bn.weight", "bn.running_mean", "bn.running_var"}) {
    EXPECT_EQ(BytesOf(before, name), BytesOf(after, name)) << name;
  }
  EXPECT_NE(BytesOf(before, "out.weight"), BytesOf(after, "out.weight"));
}

}  // namespace
}  // namespace muster::testing
