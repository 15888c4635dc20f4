// Hosts on this machine, "here" with the launcher and a, b, c and "old": network namespaces joined
// by a bridge. All but the first have a real sshd. They share the file system and the process
// table, except that muster on "old" has another version, and the monotonic clock of b is ahead.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/e2e/namespaces.h"

namespace muster::testing {

class SshCluster {
 public:
  // Why this machine cannot run it, or "".
  static std::string WhyNot();

  SshCluster();

  // Whether each sshd has become ready, within some seconds.
  ::testing::AssertionResult IsUp();
  // The command that runs another one on the launcher's host.
  std::vector<std::string> Inside(const std::vector<std::string>& words) const {
    return namespaces_.Inside(words);
  }
  // The value for --ssh. Its config also has a host "stranger", whose key is not the known one.
  std::string ssh() const { return "ssh -F " + (dir_ / "ssh_config").string(); }
  // Kills every process of a host, its sshd included.
  void Kill(const std::string& host);
  // Runs a command outside of the hosts, where their network namespaces have their names.
  void Run(const std::string& command) { (void)namespaces_.Run({"/bin/sh", "-c", command}); }
  // Unplugs a host from the network.
  void Unplug(const std::string& host);
  // The PIDs of processes of all hosts whose command line contains this text.
  std::vector<pid_t> Find(const std::string& text) const { return namespaces_.Find(text); }

 private:
  Namespaces namespaces_;
  std::filesystem::path dir_;
};

}  // namespace muster::testing
