// NumPy arrays: training, evaluation and prediction.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "tests/cli/text/unwrapped.h"
#include "tests/data/npz_file.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A linear function of all samples, in full-batch steps.
constexpr const char* kValues = R"(
  run { seed: 3 steps: 60 global_batch: 16 slices: 4 }
  data { format: NPZ }
  model {
    layer { name: "output" dense {} }
    layer { name: "loss" mean_squared_error {} }
  }
  optimizer { type: SGD }
  learning_rate { base: 0.2 }
  evaluation { every_steps: 20 every_epochs: 0 patience: 2 min_delta: 0.001 }
)";

constexpr const char* kClasses = R"(
  run { seed: 3 steps: 60 global_batch: 16 slices: 4 }
  data { format: NPZ preprocess { mean: [10, 0, 0, 0] stddev: [5, 1, 1, 1] } }
  model {
    layer { name: "hidden" dense { units: 8 } }
    layer { name: "relu" relu {} }
    layer { name: "outputs" dense {} }
    layer { name: "loss" softmax_cross_entropy {} }
  }
  optimizer { type: ADAM }
  learning_rate { base: 0.02 }
)";

class Arrays : public RealJob {
 protected:
  // Samples of three classes, clustered around three points in four dimensions.
  static NpyMembers Blobs(const std::string& ending, int samples, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int i = 0; i < samples; ++i) {
      y.push_back(i % 3);
      for (int feature = 0; feature < 4; ++feature) {
        const auto noise = static_cast<float>(random() % 1000) / 1000 - 0.5F;
        x.push_back((feature == 0 ? 10 : 0) + (feature == i % 3 ? 3 : 0) + noise);
      }
    }
    return {{"x" + ending, Npy({samples, 4}, x)}, {"y" + ending, Npy({samples}, y)}};
  }
  Outcome Train(const std::string& config, const std::string& run,
                const std::vector<std::string>& more) {
    std::vector<std::string> words{"launch",    Write("arrays.txtpb", config),
                                   "--data",    Path("data.npz"),
                                   "--run-dir", Path(run)};
    words.insert(words.end(), more.begin(), more.end());
    return Muster(words, run);
  }
  // Runs `muster` and returns its output, including standard error.
  std::string Print(std::vector<std::string> words, ExitCode code = ExitCode::kOk) {
    words.insert(words.begin(), "muster");
    Process process(words, Path("log"));
    EXPECT_EQ(process.Wait(60), Code(code)) << process.Log();
    return process.Log();
  }
};

TEST_F(Arrays, AreLearnedWithTheSameBitsOnAnyNumberOfWorkers) {
  NpyMembers members = Blobs("_train", 100, 1);
  for (const auto& member : Blobs("_test", 30, 2)) members.push_back(member);
  WriteNpzFile(Path("data.npz"), members, /*compressed=*/true);
  const Outcome one = Succeeded(Train(kClasses, "one", {"--workers", "1"}));
  const Outcome two =
      Succeeded(Train(kClasses, "two", {"--workers", "2", "--set", "data.prefetch_threads=3"}));
  EXPECT_EQ(one.hash(), two.hash());
  EXPECT_EQ(one.metrics.back()["test_accuracy"], 1);
  EXPECT_THAT(Unwrapped(one.log), HasSubstr("4 features of float32, 3 classes"));

  // Evaluates on other arrays of the same kind, without a training set.
  WriteNpzFile(Path("other/test.npz"), Blobs("", 15, 3));
  const Json evaluated =
      Json::parse(Print({"eval", Path("one"), "--data", Path("other"), "--json"}));
  EXPECT_EQ(evaluated["test_accuracy"], 1);
  WriteNpzFile(Path("narrow.npz"), {{"x", Npy<float>({1, 2}, {1, 2})}, {"y", Npy<int>({1}, {0})}});
  EXPECT_THAT(Print({"eval", Path("one"), "--data", Path("narrow.npz")}, ExitCode::kData),
              AllOf(HasSubstr("1x1x4 float32"), HasSubstr("1x1x2 float32")));
}

TEST_F(Arrays, SamplesOfAnyFileArePredicted) {
  NpyMembers members = Blobs("_train", 100, 1);
  for (const auto& member : Blobs("_test", 30, 2)) members.push_back(member);
  WriteNpzFile(Path("data.npz"), members);
  const Outcome run = Succeeded(
      Train(kClasses, "run", {"--workers", "1", "--set", "data.preprocess.brightness=3"}));
  EXPECT_THAT(Unwrapped(run.log), HasSubstr("no effect data.preprocess.brightness=3: needs "));
  EXPECT_THAT(Print({"inspect", Path("run/model.safetensors")}),
              HasSubstr("[{\"subtract\":[10.0,0.0,0.0,0.0]},{\"divide\":[5.0,1.0,1.0,1.0]}]"));
  std::filesystem::remove(Path("data.npz"));
  WriteNpzFile(Path("new.npz"), Blobs("", 9, 4));
  std::istringstream lines(Print({"predict", Path("run"), Path("new.npz"), "--csv", "--top", "1"}));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "image,class,name,probability");
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_THAT(line, StartsWith(fmt::format("{}[{}],{},,0.", Path("new.npz").string(), i, i % 3)));
  }
  EXPECT_FALSE(std::getline(lines, line));
}

// y = 3 + 2 a - b + ab / 2 for a and b of 1 or -1. A linear function cannot fit the last term,
// whose mean square is 1/4.
TEST_F(Arrays, ValuesArePredictedAsLeastSquaresDo) {
  std::vector<float> x;
  std::vector<double> y;
  for (int i = 0; i < 16; ++i) {
    const float a = i % 2 == 0 ? 1 : -1, b = i % 4 < 2 ? 1 : -1;
    x.insert(x.end(), {a, b});
    y.push_back(3 + 2 * a - b + a * b / 2);
  }
  const std::string inputs = Npy({16, 2}, x), values = Npy({16, 1}, y);
  WriteNpzFile(Path("data.npz"),
               {{"x_train", inputs}, {"y_train", values}, {"x_test", inputs}, {"y_test", values}});
  const Outcome one = Succeeded(Train(kValues, "one", {"--workers", "1"}));
  const Outcome two = Succeeded(Train(kValues, "two", {"--workers", "2"}));
  EXPECT_EQ(one.hash(), two.hash());
  const Json last = one.metrics.back();
  EXPECT_NEAR(last["test_loss"], 0.25, 1e-5);
  EXPECT_TRUE(last["test_accuracy"].is_null());
  EXPECT_FALSE(last.contains("best_test_accuracy"));
  EXPECT_TRUE(last["train_accuracy"].is_null());
  EXPECT_GE(last["best_step"], 20);
  EXPECT_THAT(one.log, AllOf(HasSubstr("test loss"), Not(HasSubstr("accuracy"))));
  EXPECT_THAT(Unwrapped(one.log), HasSubstr("2 features of float32, values"));

  const Json evaluated = Json::parse(Print({"eval", Path("one"), "--json"}));
  EXPECT_EQ(evaluated["test_loss"], last["test_loss"]);
  EXPECT_EQ(evaluated["same_as_reported"], true);
  WriteNpzFile(Path("new.npz"), {{"x", Npy<float>({1, 2}, {2, 0})}});
  const Json predicted = Json::parse(Print({"predict", Path("one"), Path("new.npz"), "--json"}));
  EXPECT_NEAR(predicted["value"], 7, 1e-2);
  EXPECT_THAT(Print({"predict", Path("one"), "--samples", "0"}, ExitCode::kUsage),
              HasSubstr("predicts values"));
  // No improvement in two successive evaluations, because the loss cannot fall below the residual.
  const Outcome stopped =
      Succeeded(Train(kValues, "stopped", {"--workers", "1", "--set", "run.steps=2000"}));
  EXPECT_THAT(Unwrapped(stopped.log), HasSubstr("stopped early no lower test loss than 0.25"));

  // The best weights are those with the lowest loss. After a lower one, those on the disk are
  // outdated.
  Print({"inspect", Path("one"), "--best"});
  std::filesystem::remove(Path("one/run.events"));  // then metrics.jsonl counts
  std::ofstream(Path("one/metrics.jsonl"), std::ios::app)
      << R"({"step":500,"test_accuracy":null,"test_loss":0.01})"
      << "\n";
  EXPECT_THAT(Print({"inspect", Path("one"), "--best"}, ExitCode::kData),
              HasSubstr("best evaluation was at step 500"));
}

TEST_F(Arrays, WhatNeedsClassesHasNoEffectOnValues) {
  std::vector<float> inputs, values;
  for (int i = 0; i < 16; ++i) {
    inputs.push_back(i % 2 == 0 ? 1 : -1);
    values.push_back(static_cast<float>(i % 4));
  }
  const std::string x = Npy({16, 1}, inputs), y = Npy({16}, values);
  WriteNpzFile(Path("data.npz"), {{"x_train", x}, {"y_train", y}, {"x_test", x}, {"y_test", y}});
  const Outcome plain = Succeeded(Train(kValues, "plain", {"--workers", "1"}));
  std::vector<std::string> words{"--workers", "1"};
  for (const char* setting : {"data.class_names=[\"a\", \"b\"]", "data.class_weights=[0, 2]",
                              "data.preprocess.mixup_alpha=0.2", "evaluation.confusion_matrix=true",
                              "evaluation.batch=20000", "tensorboard.images=3"}) {
    words.insert(words.end(), {"--set", setting});
  }
  const Outcome run = Succeeded(Train(kValues, "run", words));
  EXPECT_EQ(run.hash(), plain.hash());
  EXPECT_THAT(Unwrapped(run.log), AllOf(HasSubstr("data.class_names=[...]: needs data.format="),
                                        HasSubstr("and 2 more")));
  EXPECT_FALSE(std::filesystem::exists(Path("run/confusion_matrix.csv")));
  EXPECT_THAT(Slurp(Path("run/model.safetensors")), Not(HasSubstr("\"class_names\"")));
  const Json evaluated = Json::parse(Print({"eval", Path("run"), "--json"}));
  EXPECT_EQ(evaluated["same_as_reported"], true);
  EXPECT_THAT(
      Unwrapped(Print({"eval", Path("run"), "--confusion"}, ExitCode::kUsage)),
      AllOf(HasSubstr("--confusion: these weights predict values"), Not(HasSubstr("(config)"))));
}

TEST_F(Arrays, WhatContradictsValuesIsRefused) {
  const std::string x = Npy<float>({2, 1}, {1, 2}), y = Npy<float>({2}, {0.5, -1});
  WriteNpzFile(Path("data.npz"), {{"x_train", x}, {"y_train", y}, {"x_test", x}, {"y_test", y}});
  const auto expect = [&](const std::string& setting, const std::string& text) {
    const Outcome outcome = Train(kValues, "run", {"--set", setting});
    EXPECT_EQ(outcome.exit_code, Code(ExitCode::kUsage));
    EXPECT_THAT(outcome.log, HasSubstr(text));
  };
  // The run would never stop.
  expect("evaluation.stop_at_accuracy=0.5", "needs classes, but y holds values");
  expect("model.layer[output].dense.units=2", "expected mean_squared_error of 1 output");
  expect("model.layer[loss].softmax_cross_entropy={}", "store y.astype");
}

}  // namespace
}  // namespace muster::testing
