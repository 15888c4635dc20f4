// The members of a job as child processes of the launcher.
#pragma once

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "cli/job/failure.h"
#include "cli/job/job_plan.h"
#include "cli/job/job_token.h"
#include "cli/job/members.h"
#include "cli/process/child_process.h"
#include "cli/process/line_reader.h"
#include "cli/text/console.h"

namespace muster {

// Owned by the launcher's main thread (see ChildProcess). The destructor kills what still runs.
class JobProcesses : public Members {
 public:
  // Starts the server. Throws Error.
  JobProcesses(const JobPlan& plan, Console& console);

  // Or says how to start them, where somebody else does.
  void StartWorkers(const std::string& endpoint) override;
  void Replace(int rank) override;

  size_t size() const override { return members_.size(); }
  int rank(size_t member) const override { return members_[member].rank; }
  pid_t pid(size_t member) const override { return members_[member].process->pid(); }
  bool running(size_t member) const override { return members_[member].process->running(); }
  bool stopped(size_t member) const override;
  void Signal(size_t member, int signal) override { members_[member].process->Signal(signal); }
  void TellServerOfFailure() override { Signal(0, SIGUSR2); }
  std::string LastWords(int rank) const override;
  std::string LogPath(int rank) const override;

  // Those that have ended since the last call.
  std::vector<EndedProcess> TakeEnds();
  // The server's events.
  LineReader& reports() { return reports_; }

 private:
  struct Member {
    int rank;
    std::unique_ptr<ChildProcess> process;
  };
  std::unique_ptr<ChildProcess> StartWorker(int rank, bool append) const;
  std::unique_ptr<ChildProcess> Started(const ChildOptions& options) const;

  const JobPlan& plan_;
  Console& console_;
  JobToken token_;
  LineReader reports_;
  std::string endpoint_;  // of the server
  std::vector<Member> members_;
  std::vector<WorkerPlace> places_;
};

}  // namespace muster
