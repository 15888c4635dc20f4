// If a file or directory is not what a command for weights expects, the error names it and the
// remedy, and nothing is written.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/base/error.h"
#include "tests/base/paths.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Mistakes : public RealJob {
 protected:
  void Trained() {
    const Outcome first = Succeeded(Launch({"run.steps=5", "evaluation.skip_final=true"}));
  }
  std::string Weights() const { return Path("run0") / "model.safetensors"; }
};

// Every command names wrong files, and none waits forever.
TEST_F(Mistakes, OtherKindsOfFilesAreNamed) {
  Trained();
  const std::string config = Path("tiny.txtpb"), out = Path("out");
  const std::string pipe = Path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string sparse = Write("sparse.safetensors", "");
  std::filesystem::resize_file(sparse, uint64_t{1} << 40);
  const std::string archive = Path("weights.npz"), onnx = Path("model.onnx");
  ASSERT_EQ(Muster({"export", Path("run0"), "--format", "npz", archive}).exit_code, 0);
  ASSERT_EQ(Muster({"export", Path("run0"), "--format", "onnx", onnx}).exit_code, 0);
  for (const auto& [file, what] :
       std::map<std::string, const char*>{{pipe, "is a pipe"},
                                          {sparse, "is damaged, or not a safetensors file"},
                                          {archive, "is a NumPy archive (.npz)"},
                                          {onnx, "is damaged, or not a safetensors file"},
                                          {config, "is damaged, or not a safetensors file"},
                                          {"/dev/zero", "is a device"},
                                          {"/proc/self/maps", "is a virtual file of the kernel"}}) {
    const std::vector<std::string> commands[] = {
        {"import", file, "--config", config, out},
        {"export", file, "--format", "safetensors", out},
        {"eval", file},
        {"predict", file, "--samples", "0"},
        {"launch", config, "--data", Path("data"), "--run-dir", out, "--initial-weights", file}};
    for (const std::vector<std::string>& command : commands) {
      const Outcome outcome = Muster(command);
      EXPECT_EQ(outcome.exit_code, Code(ExitCode::kData)) << command[0] << " " << outcome.log;
      EXPECT_THAT(outcome.log, HasSubstr(file + ": " + what)) << command[0];
      EXPECT_FALSE(std::filesystem::exists(out)) << command[0];
    }
  }
  EXPECT_THAT(Muster({"inspect", archive}).log, HasSubstr("is a NumPy archive (.npz)"));
  const Outcome directory = Launch({"run.initial_weights=" + Path("run0").string()});
  EXPECT_EQ(directory.exit_code, Code(ExitCode::kUsage));
  EXPECT_THAT(directory.log, HasSubstr("The weights of this run are in " + Weights()));
  EXPECT_THAT(Muster({"launch", Weights()}).log, HasSubstr("is not a text file"));
  EXPECT_THAT(Muster({"launch", Path("run0")}).log, HasSubstr("--resume " + Path("run0").string()));
}

TEST_F(Mistakes, ARunMayNotTakeTheNameOfTheNewest) {
  ExpectRefused({"launch", ConfigPath("smoke.txtpb"), "--run-dir", "latest"}, ExitCode::kUsage,
                "the newest run");
}

TEST_F(Mistakes, OutputsDoNotReplaceOtherFiles) {
  Trained();
  const std::string before = Slurp(Weights());
  for (const std::string name : {"a.html", "a.svg", "a.png"})
    std::filesystem::copy_file(Weights(), Path(name));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"eval", "--confusion-csv", Weights()},
        {"eval", "--html", Path("a.html")},
        {"plot", "--output", Path("a.svg")},
        {"plot", "--output", Path("a.png")}}) {
    ExpectRefused({words[0], Path("run0"), words[1], words[2]}, ExitCode::kUsage, words[2]);
    EXPECT_EQ(Slurp(words[2]), before);
  }
}

TEST_F(Mistakes, ALinkIsReplacedAndNotWhatItPointsTo) {
  Trained();
  const std::string store = Write("store.npz", "work of a day"), link = Path("latest.npz");
  std::filesystem::create_symlink("store.npz", link);
  const std::vector<std::string> arguments{"export", Path("run0"), "--format", "npz", link};
  const Outcome refused = Muster(arguments);
  EXPECT_EQ(refused.exit_code, Code(ExitCode::kUsage));
  EXPECT_THAT(refused.log, HasSubstr("already exists"));
  std::vector<std::string> forced = arguments;
  forced.emplace_back("--force");
  EXPECT_EQ(Muster(forced).exit_code, 0);
  EXPECT_FALSE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::filesystem::file_size(store), 13u);
}

// An error is a single printable line, whatever names, values or paths contain.
TEST_F(Mistakes, NothingOfANameReachesTheTerminalRaw) {
  const std::string config = Path("tiny.txtpb");
  ExpectRefused({"launch", "no\x1b[31m\nfile"}, ExitCode::kUsage, "no\\x1b[31m\\nfile");
  ExpectRefused({"launch", config, "--set", "run.seed=\a\n"}, ExitCode::kUsage, "got \\x07\\n");
  const Outcome longer =
      Muster({"launch", config, "--set", "run.seed=" + std::string(50'000, '9')});
  EXPECT_EQ(longer.exit_code, Code(ExitCode::kUsage));
  EXPECT_LT(longer.log.size(), 2100u);
  EXPECT_THAT(longer.log, HasSubstr("more characters)"));
  const Outcome plan = Succeeded(Muster(
      {"launch", config, "--data", Path("data"), "--dry-run", "--run-dir", Path("run\x1b[31m")}));
  EXPECT_EQ(plan.log.find('\x1b'), std::string::npos) << plan.log;
}

TEST_F(Mistakes, AnotherDirectoryThanTheRuns) {
  Trained();
  const std::string run = Path("run0");
  const std::string checkpoint = run + "/checkpoints/step-00000000-g1";
  ExpectRefused({"eval", checkpoint + "/tensors.safetensors"}, ExitCode::kUsage,
                "is part of a checkpoint: give its folder, " + checkpoint);
  ExpectRefused({"eval", Path("run0") / "checkpoints"}, ExitCode::kUsage,
                "expected the directory of a run, a checkpoint or a weights file");
  fs::create_directory(Path("series"));
  fs::create_directory_symlink(run, Path("series") / "seed-1");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"eval"}, {"predict", "--samples", "0"}, {"inspect"}}) {
    std::vector<std::string> words = command;
    words.push_back(Path("series"));
    ExpectRefused(words, ExitCode::kUsage,
                  "`muster runs " + Path("series").string() + "` lists the runs");
  }
  ExpectRefused({"inspect", run, "--set", "run.seed=3"}, ExitCode::kUsage, "is not a config");
}

}  // namespace
}  // namespace muster::testing
