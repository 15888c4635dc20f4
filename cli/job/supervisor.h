// Decides about the processes of one job: what phase it is in, who is to be stopped and when, and
// what is told about its end. It waits for nothing and reads no clock; whoever runs it
// (watch_job.h) tells it what happened, and the time.
//
// What it guarantees, whatever the members do:
// - every wait has an end: for the server's endpoint, for the start, for the server's next sign of
//   life, for each stage of stopping;
// - the first failure decides, and the others are told to stop within 5 s;
// - SIGINT, SIGTERM and SIGHUP stop the job within 5 s, the server first, so that it can write
//   the run's last line and its state; while it says that it writes that, it is waited for 5
//   minutes at most. A second one kills at once.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/job/failure.h"
#include "cli/job/job_display.h"
#include "cli/job/job_plan.h"
#include "cli/job/replacements.h"
#include "cli/process/signal_source.h"
#include "proto/events.pb.h"

namespace muster {

// How a job is stopped: who is asked when, and when nobody is asked any more. Points in time, in
// seconds of the supervisor's clock; no process is touched here.
class StopStages {
 public:
  // A failure: the others may notice it by themselves for a while, which is shorter where they
  // may not know one another yet (`joined` is false).
  void BeginAfterFailure(double now, bool joined);
  // A failure that nobody else knows of.
  void BeginAtOnce(double now);
  // The server is gone, and the others' work with it.
  void BeginWithoutServer(double now);
  // Somebody wants the job to stop: the server first, so that it can write the last line.
  void BeginWithServer(double now);

  // The server is writing the run's state: for a little longer nobody is killed, all in
  // all 5 minutes at most.
  void WaitForServer(double now);

  // No more grace, at once or by and by.
  void Hurry(double now);
  void Kill(double now);

  // What is due, each thing once. `server_gone`: those who wait for the server to go first wait no
  // longer.
  struct Due {
    bool terminate_server = false, terminate_all = false, kill_all = false;
  };
  Due Take(double now, bool server_gone);

  double next() const;  // when something is due
  // Some process has not gone although it was killed.
  bool GivenUp(double now) const { return now >= give_up_at_; }

 private:
  void Begin(double terminate_server_at, double terminate_all_at);

  double terminate_server_at_ = kNever, terminate_all_at_ = kNever, kill_at_ = kNever;
  double give_up_at_ = kNever;
  double wait_until_ = kNever;  // at most; set when stopping begins
  bool server_first_ = false;
};

class Supervisor {
 public:
  // The server has just been started. `now`, here and below: seconds on a clock that leaves out the
  // time in which nobody could look. Nothing is copied.
  Supervisor(const JobPlan& plan, Members& members, JobDisplay& display, double now);

  void OnEvent(const events::Event& event, double now);
  // In the order of their ends. The server's events from before its end have been told.
  void OnEnds(const std::vector<EndedProcess>& ended, double now);
  void OnSignal(const ReceivedSignal& signal, double now);  // one that stops a job
  void AskForCheckpoint();
  // What is due by now: deadlines that are missed, the next stage of stopping.
  void Check(double now);

  double next_check() const;  // if nothing happens before
  // Every process is gone, or was killed long ago.
  bool Over(double now) const;
  // Once it is over.
  JobOutcome Outcome() const;

 private:
  enum class Phase {
    kServerStarting,  // until it says where it listens
    kWorkersJoining,  // until it says that the job has started
    kRunning,
    kFinishing,  // the server has completed the run; workers are about to end
    kStopping,
  };
  struct SaidByServer {
    double heard_at = 0;             // its last word
    std::optional<double> saved_by;  // it writes the weights, and may take until then
    std::vector<uint32_t> missing;   // ranks
    std::optional<JobFailure> failure;
    std::optional<events::Summary> summary;
  };
  struct AtFailure {
    Observed observed;
    double at = 0;
  };
  // A failure that is found here, and is not judged from the members' ends.
  struct Finding {
    JobFailure failure;
    std::string log_path;
    bool server_is_silent = false;
  };
  struct StopRequest {
    double at = 0;
    bool by_key = false;
  };

  void StartWorkers(const std::string& endpoint, double now);
  // True: the job goes on without this worker, or with another in its place.
  bool GoesOnWithout(const EndedProcess& process, double now);
  bool IsNoLoss(const EndedProcess& process, double now);
  void TakeLostExits(double now);
  // Starts processes; the job fails if that cannot be done.
  void OrFail(const std::function<void()>& start, double now);
  void OnSaving(const events::Saving& saving, double now);
  void OnSummary(const events::Summary& summary, double now);
  bool IsToldAtTheEnd(const events::Event& event) const;
  void CheckPhaseDeadline(double now);
  void KillLeftovers(double now);
  void Warn(const std::string& message);
  void CheckServerSilence(double now);
  bool ServerMayHang(double now) const;
  bool ServerReports() const;  // each second
  Observed Observe(double now) const;

  std::optional<ServerLoss> LostServer(bool stuck) const;

  // Stop after a grace in which the others may end by themselves.
  void FailWithOthers(double now);
  // Fails at once.
  void Fail(Finding finding, double now);
  void ContinueStopping(double now);
  void SignalAll(int signal);

  const JobPlan& plan_;
  Members& members_;
  JobDisplay& display_;

  Phase phase_ = Phase::kServerStarting;
  double deadline_;              // of the present phase, unless it is kRunning or kStopping
  double given_up_at_ = kNever;  // what was killed at the end, and is still there
  // Workers have ended with 0, and stand in ended_: they are lost if the server has not explained
  // it by then.
  double early_exit_by_ = kNever;
  SaidByServer server_;
  // Workers that ended while the server may hang, and perhaps because of that. They are neither
  // counted as lost nor replaced before the server speaks again or is given up.
  std::vector<EndedProcess> held_;
  std::vector<EndedProcess> ended_;
  AtFailure at_failure_;
  std::optional<Finding> found_;

  events::Summary changes_;  // those of the plan, and what happened since
  Replacements replacements_;
  StopStages stages_;
  std::optional<StopRequest> stop_request_;  // the first
  int stop_signal_ = 0;                      // of that request, unless a failure came before it
};

}  // namespace muster
