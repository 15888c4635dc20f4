// A job's token and the keys derived from it are never visible to others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/base/paths.h"
#include "tests/e2e/hand_job.h"

namespace muster::testing {
namespace {

namespace fs = std::filesystem;

class Secrets : public HandJob {
 protected:
  Secrets() { old_mask_ = ::umask(0); }
  ~Secrets() override { ::umask(old_mask_); }

  static void ExpectNothingShownBy(pid_t pid, const std::string& token) {
    const fs::path proc = fs::path("/proc") / std::to_string(pid);
    const std::string words = Slurp(proc / "cmdline"), environment = Slurp(proc / "environ");
    EXPECT_NE(words, "") << pid;
    EXPECT_EQ(words.find(token), std::string::npos) << words;
    EXPECT_EQ(environment.find(token), std::string::npos) << words;
  }

  mode_t old_mask_;
  const Words encrypted_{
      "--set", "cluster.encryption=CURVE", "--set", "cluster.transport=TCP", "--epochs", "100000"};
};

// One worker reads it from the file, the other from its environment. Both erase the source.
TEST_F(Secrets, NoProcessAndNoFileShowsTheToken) {
  const auto server = Server(encrypted_);
  const std::string endpoint = Endpoint(*server);
  struct stat file {};
  ASSERT_EQ(::stat(Path("run/token").c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0600u) << "regardless of the umask";
  std::string token = Slurp(Path("run/token"));
  token.resize(32);
  const Words words{"muster",     "worker", Path("run/config.txtpb"), "--rank", "0",
                    "--endpoint", endpoint};
  Words with_file = words;
  with_file[4] = "1";
  with_file.insert(with_file.end(), {"--token-file", Path("run/token")});
  const auto first = PlainWorker(words, {.environment = {{"MUSTER_TOKEN", token}}});
  const auto second = PlainWorker(with_file);
  ASSERT_TRUE(Reaches("run", 3)) << server->Log() << first->Log() << second->Log();
  for (const pid_t pid : {server->pid(), Find("run", -1), first->pid(), second->pid()}) {
    ExpectNothingShownBy(pid, token);
  }
  EXPECT_EQ(server->EndBy(SIGINT, 30), 130) << server->Log();
  (void)first->Wait(20);
  (void)second->Wait(20);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(Path(""))) {
    if (!entry.is_regular_file() || entry.path().filename() == "token") continue;
    ++files;
    EXPECT_EQ(Slurp(entry.path()).find(token), std::string::npos) << entry.path();
  }
  EXPECT_GT(files, 5);
}

// The kernel makes root the owner of such a process's files in /proc.
TEST_F(Secrets, AnEncryptedJobLeavesNoCoreDumps) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  if (!EveryoneMayRunThePrograms()) {
    GTEST_SKIP() << "other users may not run the programs in " << BinDir();
  }
  constexpr uid_t kNobody = 65534;
  fs::permissions(Path(""), fs::perms::all);
  for (const bool encrypted : {false, true}) {
    const std::string run = encrypted ? "run" : "plain";
    const std::string endpoint = "tcp://127.0.0.1:" + std::to_string(FreePort());
    const auto worker =
        PlainWorker({"muster", "worker", Path("config.txtpb"), "--rank", "0", "--endpoint",
                     endpoint, "--set", "cluster.transport=TCP", "--set",
                     std::string("cluster.encryption=") + (encrypted ? "CURVE" : "NONE")},
                    {.environment = {{"MUSTER_TOKEN", token()}}, .user = kNobody});
    struct stat shown {};
    const auto owner_is = [&](uid_t user) {
      return worker->Log().find("joining the job") != std::string::npos &&
             ::stat(("/proc/" + std::to_string(worker->pid()) + "/environ").c_str(), &shown) == 0 &&
             shown.st_uid == user;
    };
    EXPECT_TRUE(Eventually(20, [&] { return owner_is(encrypted ? 0 : kNobody); }))
        << shown.st_uid << " " << worker->Log();
  }
}

}  // namespace
}  // namespace muster::testing
