// If a pipe, an endless device or a folder replaces a run's file, every command ends and names it.
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/base/error.h"
#include "tests/e2e/real_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SpecialFiles : public RealJob {
 protected:
  void SetUp() override {
    ASSERT_EQ(Launch({"checkpoint.keep_last=1"}).exit_code, 0);
    checkpoint_ = "checkpoints/" + Checkpoints("run0").back().filename().string();
  }
  // Replaces a file of run0 by something of this kind.
  void Replace(const std::string& name, const std::string& kind) {
    const fs::path path = Path("run0/" + name);
    fs::rename(path, Path("kept"));
    if (kind == "pipe") {
      ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    } else if (kind == "device") {
      fs::create_symlink("/dev/zero", path);
    } else {
      fs::create_directory(path);
    }
  }
  void PutBack(const std::string& name) {
    fs::remove_all(Path("run0/" + name));
    fs::rename(Path("kept"), Path("run0/" + name));
  }

  std::string checkpoint_;
};

TEST_F(SpecialFiles, OfARunHoldNoCommandUp) {
  const std::string run = Path("run0");
  const std::vector<std::vector<std::string>> commands{{"runs", Path("")},
                                                       {"inspect", run},
                                                       {"top", run},
                                                       {"plot", run},
                                                       {"launch", "--resume", run}};
  for (const std::string& name :
       {std::string("config.txtpb"), std::string("metrics.jsonl"), std::string("run.events"),
        std::string("run_id"), std::string("server.log"), std::string("model.safetensors"),
        checkpoint_ + "/state.pb", checkpoint_ + "/tensors.safetensors"}) {
    for (const char* kind : {"pipe", "device", "folder"}) {
      Replace(name, kind);
      for (const std::vector<std::string>& command : commands) {
        const Outcome outcome = Muster(command);
        EXPECT_THAT(outcome.exit_code, ::testing::AllOf(::testing::Ge(0), ::testing::Lt(9)))
            << name << " is a " << kind << ": " << command[0] << ": " << outcome.log;
      }
      PutBack(name);
    }
  }
  EXPECT_EQ(Muster({"inspect", run}).exit_code, 0);  // nothing was lost
}

TEST_F(SpecialFiles, InThePlaceOfEventsAreAnErrorOfData) {
  Replace("run.events", "pipe");
  for (const char* command : {"top", "plot"}) {
    const Outcome outcome = Muster({command, Path("run0")});
    EXPECT_EQ(outcome.exit_code, static_cast<int>(ExitCode::kData)) << outcome.log;
    EXPECT_THAT(outcome.log, HasSubstr("run.events: is a pipe"));
  }
  PutBack("run.events");
}

TEST_F(SpecialFiles, InThePlaceOfWeightsAreNamed) {
  for (const char* kind : {"pipe", "device", "folder"}) {
    Replace("model.safetensors", kind);
    const Outcome outcome = Muster({"launch", "--resume", Path("run0")});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.log;
    EXPECT_THAT(outcome.log, AllOf(HasSubstr("model.safetensors: cannot be written: it is a "),
                                   Not(HasSubstr("could not save the checkpoint"))));
    PutBack("model.safetensors");
  }
}

TEST_F(SpecialFiles, AreNoLogOfARunThatGoesOn) {
  fs::remove(Path("run0/server.log"));
  ASSERT_EQ(::mkfifo(Path("run0/server.log").c_str(), 0600), 0);
  const Outcome longer = Succeeded(GoOn("run0", {"--epochs", "4"}));
  EXPECT_THAT(longer.log, HasSubstr("is a pipe"));
}

// A link in a shared folder may lead to any file of the user.
TEST_F(SpecialFiles, LinksAreNotFollowed) {
  const std::string target = Write("target", "precious\n");
  std::string events;
  for (const auto& entry : fs::directory_iterator(Path("run0"))) {
    const std::string name = entry.path().filename();
    if (name.starts_with("events.out.")) events = name;
  }
  std::vector<std::string> names{"server.log",   "worker-0.log",        "config.txtpb",
                                 "run.events",   "metrics.jsonl",       "model.safetensors",
                                 ".server.lock", "config.txtpb.partial"};
  if (!events.empty()) names.push_back(events);
  int epochs = 4;
  for (const std::string& name : names) {
    const fs::path path = Path("run0/" + name);
    std::error_code none;
    fs::rename(path, Path("kept"), none);
    fs::create_symlink(target, path);
    const Outcome outcome =
        Muster({"launch", "--resume", Path("run0"), "--epochs", std::to_string(++epochs)});
    EXPECT_EQ(Slurp(target), "precious\n") << name << ": " << outcome.log;
    if (!fs::is_symlink(path)) continue;  // replaced
    fs::remove(path);
    fs::rename(Path("kept"), path, none);
  }
}

TEST_F(SpecialFiles, AreNoToken) {
  const std::string pipe = Path("token");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Outcome outcome =
      Muster({"server", Path("tiny.txtpb"), "--data", Path("data"), "--token-file", pipe});
  EXPECT_EQ(outcome.exit_code, Code(ExitCode::kData)) << outcome.log;
  EXPECT_THAT(outcome.log, HasSubstr("is a pipe"));
}

}  // namespace
}  // namespace muster::testing
