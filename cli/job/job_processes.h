// The members of a job as processes: the server and the workers of this host are children of the
// launcher, those of other hosts are children of an agent there.
#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/job/failure.h"
#include "cli/job/job_plan.h"
#include "cli/job/local_relay.h"
#include "cli/job/remote_workers.h"
#include "cli/process/child_process.h"
#include "cli/process/held_file.h"
#include "cli/process/line_reader.h"
#include "cli/text/console.h"

namespace muster {

// An argument for the next server: "120,4711.250,signal 9"; the step is -1 if unknown.
std::string LossArgument(const ServerLoss& loss);

// Owned by the launcher's main thread (see ChildProcess). The destructor kills those that are still
// running.
class JobProcesses : public Members {
 public:
  // Starts the server. Throws Error, StartError if it may work later.
  JobProcesses(const JobPlan& plan, Console& console);

  ~JobProcesses() override;

  // If the workers are started by hand, only prints how to start them. In a Slurm job, starts one
  // srun for all of them; with -H, one ssh for those of each other host.
  void StartWorkers(const std::string& endpoint) override;
  void Replace(int rank) override;
  bool CanReplace(int rank) const override;

  size_t size() const override { return members_.size(); }
  int rank(size_t member) const override { return members_[member].rank; }
  pid_t pid(size_t member) const override;
  bool running(size_t member) const override;
  bool stopped(size_t member) const override;
  void Signal(size_t member, int signal) override;
  void TellServerOfFailure() override { Signal(0, SIGUSR2); }
  std::string LastWords(int rank) const override;
  std::string LogPath(int rank) const override;

  // The processes that have ended since the last call.
  std::vector<EndedProcess> TakeEnds();
  // Waits for the parts of the trace that other hosts still send, at most a minute.
  void AwaitTraces();
  // The server's events.
  LineReader& reports() { return reports_; }
  // The hosts that this job and those before it have lost, with workers.
  std::vector<std::string> LostHosts() const;
  // What TakeEnds reads: the connections to other hosts.
  std::vector<int> fds() const;

 private:
  struct Member {
    int rank;
    std::unique_ptr<ChildProcess> process;  // null: it runs on another host
    RemoteWorkers* remote = nullptr;
  };
  void StartOnHosts();
  std::unique_ptr<ChildProcess> StartWorker(int rank, bool append);
  std::unique_ptr<ChildProcess> StartSrun(const std::string& endpoint);
  // The error that made this worker fail, not one that was only a consequence.
  std::string WordsInSrun(int rank) const;
  std::optional<int> FirstFailedInSrun() const;
  bool HasJoined(int rank) const;
  int LocalRank(int rank) const;
  bool IsLost(const Host& host) const;
  std::vector<int> LostRanks() const;
  void UseProgram(ChildOptions& worker, int rank) const;
  std::unique_ptr<ChildProcess> Started(const ChildOptions& options) const;

  const JobPlan& plan_;
  Console& console_;
  const HeldFile token_;
  LineReader reports_;
  std::string endpoint_;                                // the server's endpoint
  std::vector<std::unique_ptr<RemoteWorkers>> remote_;  // one for each other host
  std::vector<Member> members_;
  std::vector<WorkerPlace> places_;
  LocalRelay relay_;                 // if GPUs add the gradients
  std::vector<int64_t> log_begins_;  // the sizes of the workers' logs before srun
};

}  // namespace muster
