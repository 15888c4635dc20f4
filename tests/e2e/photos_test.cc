// A folder of photos: training and evaluation, with the same bits on any number of workers.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/e2e/real_job.h"
#include "tests/image/encode.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kConfig = R"(
  run { seed: 3 steps: 24 global_batch: 16 slices: 4 }
  data {
    format: IMAGE_FOLDER
    preprocess {
      crop_height: 16 crop_width: 16 training_crop: RESIZED scale_min: 0.5 flip: true
      jitter_saturation: 0.2 mean: [0.5, 0.5, 0.5] stddev: [0.5, 0.5, 0.5]
    }
  }
  model {
    layer { name: "conv" conv2d { filters: 4 kernel: 3 padding: SAME } }
    layer { name: "relu" relu {} }
    layer { name: "pool" global_avg_pool {} }
    layer { name: "classes" dense {} }
    layer { name: "loss" softmax_cross_entropy {} }
  }
  optimizer { type: ADAM }
  learning_rate { base: 0.02 }
)";

class Photos : public RealJob {
 protected:
  Photos() {
    config_ = Write("photos.txtpb", kConfig);
    // Red, green and blue images of various sizes.
    for (const char* set : {"train", "val"}) {
      const int images = set == std::string("train") ? 12 : 4;
      for (int i = 0; i < 3 * images; ++i) WritePhoto(set, i);
    }
  }
  void WritePhoto(const std::string& set, int number) const {
    const int height = 20 + number, width = 50 - number, color = number % 3;
    Bytes pixels = Photo(height, width, 3);
    for (size_t i = 0; i < pixels.size(); ++i) {
      if (static_cast<int>(i % 3) != color) pixels[i] /= 3;
    }
    const Bytes file = EncodeJpeg({.height = height, .width = width, .pixels = pixels});
    const fs::path folder = Path("photos") / set / kClasses[color];
    fs::create_directories(folder);
    std::ofstream(folder / fmt::format("{}.jpg", number), std::ios::binary)
        .write(reinterpret_cast<const char*>(file.data()), static_cast<int64_t>(file.size()));
  }
  Outcome Train(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> words{"launch",       config_,     "--data",
                                   Path("photos"), "--run-dir", Path(run)};
    words.insert(words.end(), more.begin(), more.end());
    return Muster(words, run);
  }
  // Runs `muster predict` and returns its output, including standard error.
  std::string Predict(std::vector<std::string> words, ExitCode code) {
    words.insert(words.begin(), {"muster", "predict", Path("run")});
    Process predict(words, Path("log"));
    EXPECT_EQ(predict.Wait(60), Code(code)) << predict.Log();
    return predict.Log();
  }
  static constexpr const char* kClasses[] = {"ruby", "emerald", "sapphire"};
  std::string config_;
};

TEST_F(Photos, AreLearnedWithTheSameBitsOnAnyNumberOfWorkers) {
  const Outcome one = Succeeded(Train("one", {"--workers", "1"}));
  const Outcome two =
      Succeeded(Train("two", {"--workers", "2", "--set", "data.prefetch_threads=3"}));
  EXPECT_EQ(one.hash(), two.hash());
  EXPECT_GE(one.metrics.back()["validation_accuracy"], 0.9);
  EXPECT_FALSE(one.metrics.back().contains("test_accuracy")) << "there is no folder named test";

  Process eval({"muster", "eval", Path("two"), "--confusion", "--json"}, Path("eval.log"));
  ASSERT_EQ(eval.Wait(60), 0) << eval.Log();
  const Json evaluated = Json::parse(eval.Log());
  EXPECT_EQ(evaluated["validation_accuracy"], one.metrics.back()["validation_accuracy"]);
  EXPECT_EQ(evaluated["same_as_reported"], true);
  EXPECT_THAT(eval.Log(), HasSubstr("sapphire"));
}

TEST_F(Photos, MeanAndStddevAreMeasuredOnce) {
  std::string config = kConfig;
  const std::string given = "mean: [0.5, 0.5, 0.5] stddev: [0.5, 0.5, 0.5]";
  config.replace(config.find(given), given.size(), "measure_mean_stddev: true");
  config_ = Write("measure.txtpb", config);
  EXPECT_THAT(Train("none", {"--dry-run"}).log, HasSubstr("would be measured"));
  const Outcome run = Succeeded(Train("run", {"--workers", "2", "--set", "run.steps=12"}));
  EXPECT_THAT(run.log, HasSubstr("Measured on 36 training samples: mean 0."));
  const std::string resolved = Slurp(Path("run/config.txtpb"));
  EXPECT_THAT(resolved, AllOf(HasSubstr("measure_mean_stddev: false"), HasSubstr("stddev: [0.")));
  const Outcome again =
      Succeeded(Muster({"launch", Path("run/config.txtpb"), "--run-dir", Path("again")}, "again"));
  EXPECT_THAT(again.log, Not(HasSubstr("Measured")));
  EXPECT_EQ(again.hash(), run.hash());
  // Evaluations use the settings of the training.
  ExpectRefused(
      {"eval", Path("run/model.safetensors"), "--config", config_, "--data", Path("photos")},
      ExitCode::kUsage, "expected the mean and stddev that");
  const std::string both = "data.preprocess.mean=[0.5, 0.5, 0.5]";
  EXPECT_THAT(Train("given", {"--set", both, "--steps", "1"}).log,
              AllOf(HasSubstr("measure_mean_stddev=true: needs"), Not(HasSubstr("Measured"))));
  const Outcome longer = Succeeded(GoOn("run", {"--steps", "24"}));
  EXPECT_EQ(longer.hash(), Succeeded(Train("whole", {})).hash());
}

TEST_F(Photos, ARunWhosePhotosHaveChangedIsNotResumed) {
  Succeeded(Train("run", {"--steps", "3"}));
  fs::rename(Path("photos/train/ruby/0.jpg"), Path("photos/train/ruby/new.jpg"));
  const auto refuses = [&](const std::string& why) {
    const Outcome outcome = GoOn("run", {"--steps", "6"});
    EXPECT_EQ(outcome.exit_code, Code(ExitCode::kUsage));
    EXPECT_THAT(outcome.log, AllOf(HasSubstr(why), HasSubstr("--initial-weights")));
  };
  refuses("the training data have changed: files were added, removed");
  fs::remove(Path("photos/train/ruby/new.jpg"));
  refuses("the number of training samples was 36 and is now 35: files were added, removed");
}

TEST_F(Photos, OneThatIsDamagedEndsTheRunAndIsNamed) {
  const fs::path photo = Path("photos/train/ruby/0.jpg");
  fs::resize_file(photo, fs::file_size(photo) / 2);
  const Outcome outcome = Train("run", {"--workers", "2"});
  EXPECT_EQ(outcome.exit_code, Code(ExitCode::kData));
  EXPECT_THAT(outcome.log, HasSubstr("train/ruby/0.jpg"));
}

TEST_F(Photos, FilesArePredictedWithTheBitsOfTheDataSet) {
  Succeeded(Train("run", {"--workers", "1"}));
  const Json samples =
      Json::parse(Predict({"--samples", "0-11", "--json"}, ExitCode::kOk))["samples"];
  // The order of the data set gives the same blocks.
  std::istringstream lines(Predict({Path("photos/val"), "--json"}, ExitCode::kOk));
  std::string line;
  for (const Json& sample : samples) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(Json::parse(line)["top"], sample["top"]) << line;
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(Photos, NewOnesArePredictedWithoutTheDataSet) {
  Succeeded(Train("run", {"--workers", "1"}));
  fs::rename(Path("photos/val"), Path("new"));
  fs::remove_all(Path("photos"));
  fs::resize_file(Path("new/ruby/0.jpg"), 300);
  fs::rename(Path("new/sapphire/2.jpg"), Path("a \"blue\" one"));
  std::ofstream(Path("new/notes.txt")) << "no image";

  const std::vector<std::string> images{Path("a \"blue\" one"), Path("nowhere.png"), Path("new")};
  std::vector<std::string> words = images;
  words.emplace_back("--json");
  const std::string log = Predict(words, ExitCode::kData);
  std::istringstream lines(log);
  std::vector<std::string> found, unreadable;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('{')) continue;
    const Json json = Json::parse(line);
    const std::string image = json["image"];
    (json.contains("error") ? unreadable : found).push_back(image);
    if (json.contains("error")) continue;
    EXPECT_EQ(json["top"].size(), 3u);
    const std::string name = json["top"][0]["name"];
    EXPECT_THAT(image, AnyOf(HasSubstr("/" + name + "/"), HasSubstr("blue"))) << line;
    EXPECT_GT(json["top"][0]["probability"], json["top"][1]["probability"]);
  }
  EXPECT_EQ(found.size(), 11u);
  EXPECT_EQ(found[0], images[0]);
  EXPECT_TRUE(std::is_sorted(found.begin() + 1, found.end()));
  EXPECT_THAT(unreadable, ElementsAre(Path("nowhere.png"), Path("new/ruby/0.jpg")));
  EXPECT_THAT(log, AllOf(HasSubstr("nowhere.png: cannot be read"), HasSubstr("ruby/0.jpg: "),
                         HasSubstr("2 of 13 images could not be read")));

  const std::string csv = Predict({images[0], "--top", "1", "--csv"}, ExitCode::kOk);
  EXPECT_THAT(csv, StartsWith("image,class,name,probability\n\"" +
                              Path("a \"\"blue\"\" one").string() + "\",2,sapphire,0."));
  const std::string text = Predict({images[0]}, ExitCode::kOk);
  EXPECT_THAT(text, HasSubstr("a \"blue\" one: sapphire "));
  fs::create_directory(Path("empty"));
  ExpectRefused({"predict", Path("run"), Path("empty")}, ExitCode::kData, "empty: expected");
}

TEST_F(Photos, ClassesOfAnotherFolderAreRefused) {
  Succeeded(Train("run", {"--workers", "1"}));
  fs::rename(Path("photos/val/ruby"), Path("photos/val/garnet"));
  ExpectRefused({"eval", Path("run")}, ExitCode::kData, "garnet");
}

}  // namespace
}  // namespace muster::testing
