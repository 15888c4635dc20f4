// The workers of a job on one other host, behind one ssh. Their output goes to the same logs as
// that of workers on this host.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/hosts/remote_host.h"
#include "cli/job/failure.h"
#include "cli/job/job_plan.h"
#include "cli/text/console.h"
#include "common/base/fd.h"

namespace muster {

class RemoteWorkers {
 public:
  // Connects to the host of the ranks from `first_rank` on. Throws Error if there is no ssh.
  RemoteWorkers(const JobPlan& plan, const std::string& host, int first_rank,
                const std::string& endpoint, Console& console);

  // Starts the next worker of this host, or a replacement for one that has ended.
  void Start(int rank);
  // Does nothing if the worker has ended.
  void Signal(int rank, int signal);
  bool running(int rank) const { return Of(rank).running; }
  pid_t pid(int rank) const { return Of(rank).pid; }  // on that host; 0 until it is known

  const std::string& host() const { return connection_.name(); }
  // Whether the connection has ended, and with it all workers.
  bool lost() const { return lost_; }
  // Whether this worker was running when the connection ended.
  bool lost(int rank) const { return Of(rank).lost; }
  bool lost_workers() const { return std::ranges::any_of(workers_, &Worker::lost); }
  std::string Trouble() const;
  // Whether parts of the trace are still to come from a host that is not silent.
  bool AwaitsTrace() const;
  // Adds the workers that have ended since the last call, and those that were running when the host
  // was lost.
  void TakeEnds(std::vector<EndedProcess>& ended);

  std::vector<int> fds() const { return connection_.fds(); }
  void Close() { connection_.Close(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    pid_t pid = 0;
    bool running = false;
    bool asked = false;                          // to end
    std::optional<Clock::time_point> killed_at;  // when SIGKILL was sent
    bool was_killed = false;                     // the host has said so
    bool is_told = false;                        // that it does not end
    bool lost = false;                           // with its host
    UniqueFd log;
    UniqueFd trace;            // its part, while it comes
    bool trace_ended = false;  // all of it has come
  };
  Worker& Of(int rank) { return workers_[static_cast<size_t>(rank - first_rank_)]; }
  const Worker& Of(int rank) const { return workers_[static_cast<size_t>(rank - first_rank_)]; }
  void Handle(const nlohmann::json& message, std::vector<EndedProcess>& ended);
  void TakeTrace(const nlohmann::json& message);
  bool IsSilent() const;
  void TellUndead();
  void TellRelaysEnd(const ChildEnd& end);
  void Lose(std::vector<EndedProcess>& ended);
  void LogText(const std::string& text);

  const JobPlan& plan_;
  Console& console_;
  const int first_rank_;
  RemoteHost connection_;
  std::vector<Worker> workers_;
  UniqueFd ssh_log_;
  Clock::time_point heard_at_ = Clock::now();  // when something came from the host
  bool lost_ = false;
  bool stopping_ = false;  // workers have been told to end
};

}  // namespace muster
