// Jobs of `muster launch -H` on hosts with a real sshd (ssh_cluster.h).
#pragma once

#include <fmt/core.h>
#include <gmock/gmock-matchers.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/text.h"
#include "tests/base/paths.h"
#include "tests/e2e/hand_job.h"
#include "tests/e2e/ssh_cluster.h"

namespace muster::testing {

inline const std::vector<std::string> kLongRun{"run.epochs=300", "evaluation.every_epochs=0"};

class Ssh : public HandJob {
 protected:
  void SetUp() override {
    if (const std::string why = SshCluster::WhyNot(); !why.empty()) GTEST_SKIP() << why;
    hosts_ = std::make_unique<SshCluster>();
    ASSERT_TRUE(hosts_->IsUp());
  }

  // Starts a launch on the hosts of this list.
  std::unique_ptr<Process> Start(const std::string& list, const std::vector<std::string>& settings,
                                 const Words& options = {}) {
    Words words{"launch", Path("config.txtpb"), "--run-dir", Path("run"), "-H", list};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    words.insert(words.end(), options.begin(), options.end());
    return Muster(words);
  }
  std::unique_ptr<Process> Muster(Words words) {
    words.insert(words.begin(), BinPath("muster"));
    words.insert(words.end(), {"--ssh", hosts_->ssh()});
    return std::make_unique<Process>(hosts_->Inside(words), Path("run.log"));
  }
  // Signals the launcher itself, not the nsenter around it.
  void Signal(int signal) {
    for (const pid_t pid : hosts_->Find("muster launch ")) {
      const std::string command = Slurp(fmt::format("/proc/{}/cmdline", pid));
      if (command.starts_with(BinDir())) ::kill(pid, signal);
    }
  }
  ::testing::AssertionResult NothingLeftAnywhere(double seconds = 20) {
    std::vector<pid_t> left;
    if (Eventually(seconds, [&] { return (left = hosts_->Find(BinDir())).empty(); })) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "still running: " << Join(left, ", ");
  }
  void ExpectTheSameBits(Process& launch, const std::vector<std::string>& settings) {
    ASSERT_EQ(launch.Wait(100), 0) << launch.Log() << Slurp(Path("run/ssh.log"));
    EXPECT_TRUE(NothingLeftAnywhere());
    const Outcome here = Succeeded(Launch(settings));
    EXPECT_EQ(Metrics("run").back()["weights_hash"], here.hash());
  }
  void ExpectFailure(const std::string& list, ExitCode code,
                     const std::vector<std::string>& settings, const std::string& why) {
    const auto launch = Start(list, settings);
    EXPECT_EQ(launch->Wait(60), Code(code)) << launch->Log();
    EXPECT_THAT(launch->Log(), ::testing::HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(Path("run")));
    EXPECT_TRUE(NothingLeftAnywhere());
  }
  void KillServer() const {
    const pid_t server = RealJob::Find("run", -1);
    ASSERT_GT(server, 0);
    ::kill(server, SIGKILL);
  }
  pid_t Worker(int rank) const {
    const std::vector<pid_t> found = hosts_->Find("muster-worker train --rank ");
    for (const pid_t pid : found) {
      std::string command = Slurp(fmt::format("/proc/{}/cmdline", pid));
      std::ranges::replace(command, '\0', ' ');
      if (command.find(fmt::format("--rank {} ", rank)) != std::string::npos) return pid;
    }
    return -1;
  }

  std::unique_ptr<SshCluster> hosts_;
};

}  // namespace muster::testing
