// Runs the examples in `muster COMMAND --help` of the commands for weights, unchanged, on a run of
// the tiny network.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

class Examples : public RealJob {
 protected:
  // The examples of a command, joined with their continuation lines.
  std::vector<std::string> Of(const std::string& command) {
    std::istringstream help(Muster({command, "--help"}).log);
    std::vector<std::string> examples;
    bool goes_on = false;
    for (std::string line; std::getline(help, line);) {
      const bool begins = line.starts_with("  muster " + command + " ");
      if (!begins && !goes_on) continue;
      if (begins) examples.emplace_back();
      goes_on = line.ends_with('\\');
      if (goes_on) line.pop_back();
      examples.back() += line;
    }
    return examples;
  }
  // Replaces paths by those in the test's directory and the config by the tiny network's.
  std::vector<std::string> Here(const std::string& example) const {
    std::istringstream in(example);
    std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    words.erase(words.begin());
    for (std::string& word : words) {
      const std::string ending = fs::path(word).extension();
      if (word.starts_with("configs/")) {
        word = Path("tiny.txtpb");
      } else if (word == "DIR") {
        word = Path("data");
      } else if (word.starts_with("runs/") || ending == ".safetensors" || ending == ".npz" ||
                 ending == ".onnx") {
        word = Path(word);
      }
    }
    return words;
  }
};

TEST_F(Examples, OfCommandsAboutWeights) {
  fs::create_directory(Path("runs"));
  const Outcome run = Succeeded(
      Muster({"launch", Path("tiny.txtpb"), "--data", Path("data"), "--run-dir", Path("runs/a"),
              "--steps", "390", "--set", "evaluation.every_epochs=0", "--set",
              "checkpoint.every_steps=390", "--set", "data.validation_fraction=0.1"}));
  for (const char* const name : {"theirs.safetensors", "model.safetensors"}) {
    fs::copy_file(Path("runs/a") / "model.safetensors", Path(name));
  }
  size_t seen = 0;
  for (const std::string command : {"inspect", "export", "import", "eval", "predict"}) {
    for (const std::string& example : Of(command)) {
      ++seen;
      const Outcome outcome = Muster(Here(example));
      // photos_test predicts images; this run was trained on CIFAR-10.
      const bool of_photos = command == "predict" && example.find("--samples") == std::string::npos;
      EXPECT_EQ(outcome.exit_code, of_photos ? Code(ExitCode::kUsage) : 0) << example << "\n"
                                                                           << outcome.log;
    }
  }
  EXPECT_GE(seen, 13u);
}

// The programs that `muster` starts are included.
TEST_F(Examples, NoHelpTextIsWiderThanATerminal) {
  using Words = std::vector<std::string>;
  std::vector<Words> programs{{"muster-server"}, {"muster-worker"}};
  for (const char* command :
       {"train", "program", "relay", "memory", "predict", "evaluate", "describe-gpu"}) {
    programs.push_back({"muster-worker", command});
  }
  for (const Words& program : programs) {
    Words command = program;
    command.emplace_back("--help");
    Process process(command, Path("help"));
    EXPECT_EQ(process.Wait(20), 0);
    std::istringstream help(process.Log());
    int lines = 0;
    for (std::string line; std::getline(help, line); ++lines) {
      EXPECT_LE(line.size(), 80u) << program.back() << ": " << line;
    }
    EXPECT_GT(lines, 6) << program.back();
  }
}

}  // namespace
}  // namespace muster::testing
