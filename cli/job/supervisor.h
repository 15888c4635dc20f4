// Controls the processes of one job: its phase, which processes to stop and when, and how its end
// is reported. It never waits and reads no clock: the caller (watch_job.h) passes events and the
// time.
//
// Guarantees, whatever the members do:
// - Every wait is limited: for the server's endpoint, for the start, for the server's next event,
//   and for each stage of stopping.
// - The first failure is the one reported, and the other processes are told to stop within 5 s.
// - SIGINT, SIGTERM and SIGHUP stop the job within 5 s. The server stops first, so that it can
//   write the last line and the state of the run; while it reports that it is writing, it gets up
//   to 5 minutes. A second signal kills at once, except SIGHUP or after SIGHUP.
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

// The schedule for stopping a job: when to send which signal, and when to give up. Times are in
// seconds on the supervisor's clock; this class touches no process.
class StopStages {
 public:
  // Called after a failure. Gives the other processes a while to notice it by themselves, or less
  // if they may not be connected yet (`joined` is false).
  void BeginAfterFailure(double now, bool joined);
  // Called after a failure that the other processes cannot notice. Stops them at once.
  void BeginAtOnce(double now);
  // Called after the server is gone.
  void BeginWithoutServer(double now, bool by_srun);
  // Called after a stop request. The server stops first, so that it can write the last line.
  void BeginWithServer(double now);

  // Called when the server reports that it is writing the state. Postpones SIGTERM and SIGKILL a
  // little, up to 5 minutes in total.
  void WaitForServer(double now);

  void Hurry(double now);  // sends SIGTERM now and SIGKILL soon
  void Kill(double now);   // sends SIGKILL now

  // Returns the actions that are due, each only once. If `server_gone`, the others no longer wait
  // for the server to end first.
  struct Due {
    bool terminate_server = false, terminate_all = false, kill_all = false;
  };
  Due Take(double now, bool server_gone);

  double next() const;  // when something is due
  // Whether to stop waiting for a process that was killed but has not ended.
  bool GivenUp(double now) const { return now >= give_up_at_; }

 private:
  void Begin(double terminate_server_at, double terminate_all_at);

  double terminate_server_at_ = kNever, terminate_all_at_ = kNever, kill_at_ = kNever;
  double give_up_at_ = kNever;
  double wait_until_ = kNever;  // the latest time for WaitForServer; set when stopping begins
  bool server_first_ = false;
};

class Supervisor {
 public:
  // Create it just after starting the server. `now`, here and below, is in seconds on a clock that
  // excludes time in which the launcher was suspended. The arguments must outlive this object.
  Supervisor(const JobPlan& plan, Members& members, JobDisplay& display, double now);

  void OnEvent(const events::Event& event, double now);
  // `ended` is in the order in which the processes ended. The server's events from before its end
  // must have been passed to OnEvent.
  void OnEnds(const std::vector<EndedProcess>& ended, double now);
  void OnSignal(const ReceivedSignal& signal, double now);  // a signal that stops the job
  void AskForCheckpoint();
  // Handles what is due: missed deadlines, and the next stage of stopping.
  void Check(double now);

  double next_check() const;  // when to call Check at the latest
  // Whether every process has ended, or was killed long ago.
  bool Over(double now) const;
  // Call it only when Over().
  JobOutcome Outcome() const;

 private:
  enum class Phase {
    kServerStarting,  // until the server reports its endpoint
    kWorkersJoining,  // until the server reports that the job has started
    kRunning,
    kFinishing,  // the server has completed the run; workers are about to end
    kStopping,
  };
  struct SaidByServer {
    double heard_at = 0;             // the time of its last event
    std::optional<double> saved_by;  // the deadline while it writes the weights
    std::vector<uint32_t> missing;   // ranks that have not joined
    std::optional<JobFailure> failure;
    std::optional<events::Summary> summary;
  };
  struct AtFailure {
    Observed observed;
    double at = 0;
    bool joining = false;  // before all workers had joined
  };
  // A failure that the supervisor found itself, not one inferred from the members' ends.
  struct Finding {
    JobFailure failure;
    std::string log_path;
    bool server_is_silent = false;
    bool could_not_start = false;
  };
  struct StopRequest {
    double at = 0;
    bool by_key = false;
    int signal = 0;
  };

  void StartWorkers(const std::string& endpoint, double now);
  void OnSrunEnd(const EndedProcess& process, double now);
  // Returns whether the job continues without this worker, or with a replacement.
  bool GoesOnWithout(const EndedProcess& process, double now);
  bool IsNoLoss(const EndedProcess& process, double now);
  void TakeLostExits(double now);
  // Calls `start`, which starts processes, and fails the job if it throws.
  void OrFail(const std::function<void()>& start, double now);
  void OnSaving(const events::Saving& saving, double now);
  void OnSummary(const events::Summary& summary, double now);
  bool IsToldAtTheEnd(const events::Event& event) const;
  void CheckPhaseDeadline(double now);
  void KillLeftovers(double now);
  void Warn(const std::string& message);
  void CheckServerSilence(double now);
  bool ServerMayHang(double now) const;
  bool ServerReports() const;  // whether the server should send an event every second
  Observed Observe(double now) const;

  std::optional<ServerLoss> LostServer(bool stuck) const;

  // Stops the job, but first gives the other processes time to end by themselves.
  void FailWithOthers(double now);
  // Stops the job at once.
  void Fail(Finding finding, double now);
  void ContinueStopping(double now);
  void SignalAll(int signal);

  const JobPlan& plan_;
  Members& members_;
  JobDisplay& display_;

  Phase phase_ = Phase::kServerStarting;
  double deadline_;              // of the current phase, unless it is kRunning or kStopping
  double given_up_at_ = kNever;  // when to stop waiting for processes killed after the run
  // When workers in ended_ that ended with exit code 0 count as lost, unless the server has
  // explained their end before.
  double early_exit_by_ = kNever;
  SaidByServer server_;
  // Workers that ended while the server may hang, perhaps for that reason. They are neither counted
  // as lost nor replaced until the server sends an event or the supervisor gives up on it.
  std::vector<EndedProcess> held_;
  std::vector<EndedProcess> ended_;
  AtFailure at_failure_;
  std::optional<Finding> found_;

  events::Summary changes_;  // the changes of the plan, and those since then
  Replacements replacements_;
  StopStages stages_;
  std::optional<StopRequest> stop_request_;  // the first one that is not SIGHUP, if there is one
  int stop_signal_ = 0;                      // its signal, or 0 if a failure came before it
};

}  // namespace muster
