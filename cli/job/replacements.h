// What becomes of a job whose worker has ended or was lost while it runs: cluster.on_lost_worker.
// It waits for nothing and reads no clock, as the supervisor whose part it is.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "cli/job/failure.h"
#include "cli/job/job_plan.h"
#include "proto/events.pb.h"

namespace muster {

class Replacements {
 public:
  Replacements(const JobPlan& plan, Members& members) : plan_(plan), members_(members) {}

  // The server says who is a worker no more. A process that it has lost, and that still runs after
  // a moment, is killed: stopped, cut off or stuck, it is of no use, and another takes its place.
  void OnChange(const events::MemberChange& change, double now);

  // A step is done, or a part of an evaluation: the workers have been ready.
  void OnProgress() { has_begun_ = true; }

  // A worker has ended, and the server has not. kFatal: the job cannot go on without it. kTooMany:
  // it could, but too many have ended lately. Throws Error where none can be started.
  enum class Answer { kGoesOn, kFatal, kTooMany };
  Answer OnEnd(const EndedProcess& ended, double now);
  // Starts those that are to be started again by now, if they are `wanted` still. Throws Error.
  void StartAgain(bool wanted, double now);

  // kTooMany, in words; `how`: it ended.
  JobFailure TooMany(const EndedProcess& ended, const std::string& how) const;

  // Whether a job goes on where a worker ends so, but for how often it has happened.
  bool MayEnd(const EndedProcess& ended, double now) const;

  // It has ended with exit code 0, and the server says nothing of that: it is lost, as if it did.
  void Lose(pid_t pid) { lost_.insert(pid); }
  bool IsLost(pid_t pid) const { return lost_.contains(pid); }
  // It has said goodbye to the server, since it wanted to leave.
  bool HasLeft(pid_t pid) const { return left_.contains(pid); }

  // Kills who is due. When somebody is due next.
  void Check(double now);
  double next_check() const;

  // The server has lost it, or has not taken it yet: when the run is over nobody asks how it ends.
  bool IsOutside(pid_t pid) const { return outside_.contains(pid); }
  // Kills those: they would wait for a server that is gone.
  void EndOutsiders();

  // How the processes that are gone ended, by pid: "killed by SIGKILL"; "" if the launcher did
  // that.
  const std::map<int64_t, std::string>& ends() const { return ends_; }

 private:
  bool CameTooEarly(const EndedProcess& ended, double now) const;
  bool MayFailHere() const;
  void Replace(int rank);

  const JobPlan& plan_;
  Members& members_;
  bool has_begun_ = false;
  std::vector<double> lost_at_;
  std::map<int, double> last_lost_;    // rank → when a worker of it ended that was not refused
  std::map<int, double> again_at_;     // rank → when the next one is started
  std::map<pid_t, double> condemned_;  // and when they are killed
  std::set<pid_t> left_;               // have said goodbye to the server
  std::set<pid_t> lost_;               // the server says so
  std::set<pid_t> outside_;
  std::map<int64_t, std::string> ends_;
};

}  // namespace muster
