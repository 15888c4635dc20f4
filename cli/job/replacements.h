// Decides what happens when a worker ends or is lost during a job (cluster.on_lost_worker). Part of
// the supervisor: it never waits and reads no clock.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/job/failure.h"
#include "cli/job/job_plan.h"
#include "proto/events.pb.h"

namespace muster {

// On several hosts, workers may have the same PID.
struct WorkerId {
  int rank;
  pid_t pid;

  WorkerId(int of_rank, pid_t of_pid) : rank(of_rank), pid(of_pid) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a process that has ended is this worker.
  WorkerId(const EndedProcess& ended) : WorkerId(ended.rank, ended.pid) {}
  // clang-tidy 14 mistakes the 0 of a defaulted comparison for a pointer.
  auto operator<=>(const WorkerId&) const = default;  // NOLINT(modernize-use-nullptr)
};

class Replacements {
 public:
  // `warn` tells the user something.
  Replacements(const JobPlan& plan, Members& members, std::function<void(const std::string&)> warn)
      : plan_(plan), members_(members), warn_(std::move(warn)) {}

  // Handles a membership change that the server reports. A lost process that is still running after
  // a moment (stopped, disconnected or stuck) is killed so that it can be replaced.
  void OnChange(const events::MemberChange& change, double now);

  // The workers that a run begins with are not reported as membership changes.
  void OnStarted(const events::Started& started);

  // Called when a step or a part of an evaluation is done, so the workers have been ready.
  void OnProgress() { has_begun_ = true; }

  // Handles the end of a worker while the server runs. kFatal: the job cannot continue without the
  // worker. kTooMany: it could, but too many workers have ended recently. A replacement that cannot
  // be started is tried again later, with growing pauses, while the others go on. Throws Error.
  enum class Answer { kGoesOn, kFatal, kTooMany };
  Answer OnEnd(const EndedProcess& ended, double now);
  // Handles a replacement that its host could not start. Returns false if it is not one, but among
  // the workers that the job begins with.
  bool TryLater(const EndedProcess& not_started, double now);
  // Starts the replacements that are due, if they are still `wanted`. Throws Error.
  void StartAgain(bool wanted, double now);

  // The failure for kTooMany; `how` describes the end of the worker.
  JobFailure TooMany(const EndedProcess& ended, const std::string& how) const;

  // Whether the job can continue after this end of a worker, regardless of how many have ended.
  bool MayEnd(const EndedProcess& ended, double now) const;

  // Counts a worker that ended with exit code 0 as lost, although the server did not report it.
  void Lose(const WorkerId& worker) { lost_.insert(worker); }
  bool IsLost(const WorkerId& worker) const { return lost_.contains(worker); }
  // Whether the worker left by itself and notified the server.
  bool HasLeft(const WorkerId& worker) const { return left_.contains(worker); }

  // Kills the processes that are due.
  void Check(double now);
  double next_check() const;  // when the next action is due

  // Whether the server has lost the worker of this rank or has not accepted it yet. At the end of
  // the run it does not matter how such a worker ends. (By rank, because a program may be a child
  // of the process that ends.)
  bool IsOutside(int rank) const { return outside_.contains(rank); }
  // Kills these workers: they would wait for a server that is gone.
  void EndOutsiders();

  // How each process ended, by pid: "killed by SIGKILL"; "" if the launcher killed it.
  const std::map<int64_t, std::string>& ends() const { return ends_; }

 private:
  bool CameTooEarly(const EndedProcess& ended, double now) const;
  bool MayFailHere() const;
  bool FailsToStart(const EndedProcess& ended) const;
  // Whether another worker takes part in the run.
  bool OthersWork(int rank) const;
  void Joins(int rank);
  void Replace(int rank, double now);
  void Postpone(int rank, const std::string& why, double now);
  void Forget(const WorkerId& worker);

  const JobPlan& plan_;
  Members& members_;
  const std::function<void(const std::string&)> warn_;
  bool has_begun_ = false;
  std::vector<double> lost_at_;
  std::map<int, double> last_lost_;  // rank → when its last worker, other than a refused one, ended
  std::map<int, double> again_at_;        // rank → when its replacement is started
  std::map<int, double> pauses_;          // rank → the last pause, since a worker could not start
  std::map<WorkerId, double> condemned_;  // when it is killed
  std::set<WorkerId> left_;               // notified the server that they leave
  std::set<WorkerId> lost_;               // reported lost by the server
  std::set<int> outside_;                 // ranks
  std::set<int> starting_;                // ranks whose replacements have not joined yet
  std::set<WorkerId> ended_;
  std::map<int64_t, std::string> ends_;
};

}  // namespace muster
