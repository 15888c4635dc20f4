// A Slurm of two nodes, n1 and n2, on this machine: Debian's slurmctld and two slurmd in namespaces
// of their own, without systemd and munge.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/e2e/namespaces.h"

namespace muster::testing {

class SlurmCluster {
 public:
  // Why this machine cannot run it, or "".
  static std::string WhyNot();

  SlurmCluster();

  // Whether both nodes have become ready, within some seconds.
  ::testing::AssertionResult IsUp();
  // The command that runs another one inside, with Slurm's programs in its PATH.
  std::vector<std::string> Inside(const std::vector<std::string>& words) const;
  // Runs a short command inside. Returns its output.
  std::string Run(const std::vector<std::string>& words);
  // Submits a batch script with these options. Returns the job's number, or "".
  std::string Submit(const std::vector<std::string>& options, const std::string& script);
  // A field of `scontrol show job`, such as JobState.
  std::string JobField(const std::string& job, const std::string& field);
  // Waits until the job has this state.
  ::testing::AssertionResult Becomes(const std::string& job, const std::string& state,
                                     double seconds = 60);
  // Requeues a running job, and waits until nothing of it is left. It starts again at Restart().
  ::testing::AssertionResult Requeue(const std::string& job);
  void Restart(const std::string& job);
  // The PIDs of processes inside whose command line contains this text.
  std::vector<pid_t> Find(const std::string& text) const { return namespaces_.Find(text); }

 private:
  bool NodesAreIdle();

  Namespaces namespaces_;
  std::filesystem::path dir_;
  int jobs_ = 0;
};

}  // namespace muster::testing
