// Processes in namespaces of their own (files, network, host name, PIDs), for daemons that think
// that they have a machine for themselves.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/real_job.h"

namespace muster::testing {

class Namespaces {
 public:
  // Why this machine cannot have them, or "". `more` is a shell command that must work inside.
  static std::string WhyNot(const std::vector<std::string>& programs, const std::string& more);

  // Creates a temporary folder with this name.
  explicit Namespaces(const std::string& name);
  // Kills everything inside, and removes the folder.
  ~Namespaces();
  Namespaces(const Namespaces&) = delete;

  const std::filesystem::path& dir() const { return dir_; }
  // Runs a script of bash inside, as the first process, with these arguments. Returns false if that
  // fails.
  bool Start(const std::string& script, const std::vector<std::string>& arguments);
  // The command that runs another one inside.
  std::vector<std::string> Inside(const std::vector<std::string>& words) const;
  // Runs a short command inside. Returns its output.
  std::string Run(const std::vector<std::string>& words);
  // The PIDs of processes inside whose command line contains this text.
  std::vector<pid_t> Find(const std::string& text) const;
  std::string Log() const { return first_ ? first_->Log() : ""; }

 private:
  std::filesystem::path dir_;
  std::unique_ptr<Process> first_;
  pid_t init_ = -1;  // the first process inside
  int commands_ = 0;
};

}  // namespace muster::testing
