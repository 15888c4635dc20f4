// Verifies the guide's promise of equal bits: its commands, unchanged, and every config of the
// tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

// The words of an unquoted command line, without the program's name. Configs are the tree's.
std::vector<std::string> Words(const std::string& command) {
  std::istringstream in(command);
  std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  if (!words.empty() && words.front() == "muster") words.erase(words.begin());
  for (std::string& word : words) {
    if (word.starts_with("configs/")) word = SourcePath(word);
  }
  return words;
}

// The guide's section about bits.
std::string Promise() {
  const std::string guide = Slurp(SourcePath("docs/TRAINING.md"));
  const size_t begin = guide.find("\n## The same bits\n");
  return begin == std::string::npos ? ""
                                    : guide.substr(begin, guide.find("\n## ", begin + 1) - begin);
}

// The lines of its command block.
std::vector<std::string> PromisedCommands() {
  const std::string promise = Promise();
  const size_t begin = promise.find("```\n");
  if (begin == std::string::npos) return {};
  std::istringstream block(promise.substr(begin + 4, promise.find("```", begin + 4) - begin - 4));
  std::vector<std::string> commands;
  for (std::string line; std::getline(block, line);) commands.push_back(line);
  return commands;
}

class ReadmeTest : public RealJob {
 protected:
  std::string HashOf(std::vector<std::string> words, const std::string& name) {
    words.insert(words.end(), {"--run-dir", Path(name)});
    const Outcome outcome = Succeeded(Muster(words, name));
    EXPECT_EQ(outcome.hash().size(), 16u) << outcome.log;
    return outcome.hash();
  }
};

TEST_F(ReadmeTest, ItsCommandsHaveTheSameBits) {
  const std::vector<std::string> commands = PromisedCommands();
  ASSERT_GE(commands.size(), 4u);
  std::set<std::string> hashes;
  for (size_t i = 0; i < commands.size(); ++i) {
    ASSERT_TRUE(commands[i].starts_with("muster launch configs/")) << commands[i];
    hashes.insert(HashOf(Words(commands[i]), "run" + std::to_string(i)));
  }
  // A number of workers that does not divide the slices.
  const std::string first = commands[0].substr(0, commands[0].find(" --workers"));
  hashes.insert(HashOf(Words(first + " --workers 3"), "other"));
  // The default number of workers on this machine.
  hashes.insert(HashOf(Words(first), "default"));
  EXPECT_EQ(hashes.size(), 1u) << ::testing::PrintToString(hashes);
  // The comparison can fail.
  EXPECT_EQ(hashes.count(HashOf(Words(first + " --workers 3 --set run.slices=3"), "three")), 0u);
}

TEST_F(ReadmeTest, ConfigsAreFoundFromAnyFolder) {
  EXPECT_EQ(Muster({"inspect", "configs/smoke.txtpb"}).exit_code, 0);  // ctest runs in another
}

std::vector<std::string> Configs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(ConfigPath(""))) {
    if (entry.path().extension() == ".txtpb") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class EveryConfigTest : public ReadmeTest, public ::testing::WithParamInterface<std::string> {};

// On synthetic images, for a full batch and the rest of an epoch, without settings that affect
// bits.
TEST_P(EveryConfigTest, HasTheSameBitsOnOneTwoAndEightWorkers) {
  const std::string shape =
      GetParam().starts_with("mnist") ? "height: 28 width: 28 channels: 1" : "";
  const std::string images = "{ " + shape +
                             " train_samples: " + (GetParam() == "cifar10" ? "300" : "150") +
                             " test_samples: 10 }";
  std::set<std::string> hashes;
  for (const char* workers : {"1", "2", "8"}) {
    std::vector<std::string> words{"launch",    ConfigPath(GetParam() + ".txtpb"),
                                   "--steps",   "2",
                                   "--workers", workers,
                                   "--set",     "data.format=SYNTHETIC",
                                   "--set",     "data.synthetic=" + images};
    if (GetParam().starts_with("imagefolder") || GetParam().starts_with("cats_vs_dogs")) {
      words.insert(words.end(), {"--set", "data.preprocess.crop_height=32", "--set",
                                 "data.preprocess.crop_width=32", "--set",
                                 "data.validation_fraction=0", "--from-scratch"});
    }
    if (GetParam() == "cifar10_fast") {
      const std::string weights = Path("whiten.safetensors");
      Succeeded(Muster({"data", "whiten", words[1], "--set", "data.format=SYNTHETIC", "--set",
                        "data.synthetic=" + images, "--output", weights}));
      words.insert(words.end(), {"--set", "run.initial_weights=" + weights});
    }
    hashes.insert(HashOf(words, workers));
  }
  EXPECT_EQ(hashes.size(), 1u) << ::testing::PrintToString(hashes);
}

INSTANTIATE_TEST_SUITE_P(Configs, EveryConfigTest, ::testing::ValuesIn(Configs()),
                         [](const auto& info) { return info.param; });

// A dry run names the settings that the bits depend on, with their values.
TEST_F(ReadmeTest, ItNamesTheSettingsThatADryRunNames) {
  const Outcome outcome = Succeeded(Muster(
      {"launch", ConfigPath("smoke.txtpb"), "--dry-run", "--set", "cluster.wire_dtype=bf16"}));
  const std::string promise = Promise();
  for (const char* setting : {"run.global_batch", "run.slices", "worker.threads",
                              "worker.convolution", "cluster.wire_dtype"}) {
    EXPECT_THAT(outcome.log, ::testing::HasSubstr(std::string(setting) + "="));
    EXPECT_THAT(promise, ::testing::HasSubstr(setting));
  }
  for (const char* other : {"instruction set", "oneDNN", "C library"}) {
    EXPECT_THAT(outcome.log, ::testing::HasSubstr(other));
    EXPECT_THAT(promise, ::testing::HasSubstr(other));
  }
}

}  // namespace
}  // namespace muster::testing
