// Runs one job: starts the server, then the workers, watches all of them, and stops them.
//
// What it guarantees, whatever the children do:
// - every wait has an end: for the server's endpoint, for the start, for the server's next sign of
//   life, for each stage of stopping; time in which this process did not run does not count;
// - the first failure decides, the others are told to stop within 5 s, and nothing outlives Run;
// - SIGINT, SIGTERM and SIGHUP stop the job within 5 s, the server first, so that it can write
//   the run's last line; a second one kills at once.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/job_failure.h"
#include "common/base/log.h"
#include "common/base/own_gap.h"
#include "launch/job/failure.h"
#include "launch/job/job_display.h"
#include "launch/job/job_token.h"
#include "launch/job/run_dir.h"
#include "launch/process/child_process.h"
#include "launch/process/line_reader.h"
#include "launch/process/signal_source.h"
#include "launch/text/console.h"
#include "proto/events.pb.h"

namespace muster {

struct JobPlan {
  std::string server_program, worker_program;
  const RunDir* dir;  // config.txtpb is in it already
  int workers = 1;
  std::string endpoint;  // what workers connect to; the server is told to listen there …
  std::string bind;      // … or here, if not empty
  std::string token;
  // Set for a server whose workers are started by hand: what to print when it listens at this
  // endpoint. The server is then the only process here.
  std::function<std::vector<std::string>(const std::string& endpoint)> invite_workers;
  double start_s = 60;    // deadline for its answer, and for all workers to join
  double silence_s = 20;  // the server reports something each second
};

struct JobOutcome {
  ExitCode exit_code = ExitCode::kOk;
  int stop_signal = 0;  // the signal that ended the job, if one did
  std::optional<JobFailure> failure;
  std::string server_said;  // its own words on that, where they are not the failure's
  std::string log_path;     // of the process that failed
  std::optional<events::Summary> summary;
};

// Used once, by the main thread (see ChildProcess).
class Supervisor {
 public:
  Supervisor(const JobPlan& plan, SignalSource& signals, Console& console, JobDisplay& display);

  // Returns when every process of the job is gone.
  JobOutcome Run();

 private:
  enum class Phase {
    kServerStarting,  // until it says where it listens
    kWorkersJoining,  // until it says that the job has started
    kRunning,
    kFinishing,  // the server has completed the run; workers are about to end
    kStopping,
  };
  struct Member {
    int rank;  // -1: the server
    std::string log_path;
    ChildProcess process;
  };

  void StartServer();
  void StartWorkers(const std::string& endpoint);
  void InviteWorkers(const std::string& endpoint);

  double Now() const;  // seconds in which this process ran
  void Wait();
  void TakeSignals();
  void TakeEnds();
  void TakeReports();
  void TakeReport(const std::string& line);
  void WarnOfReport(const std::string& what);
  void CheckDeadlines();
  void CheckServerSilence();
  Observed Observe() const;

  void Fail();  // stop after a grace in which the others may end by themselves
  // The same, for a reason that this process finds, rather than a child's end.
  void Fail(JobFailure failure, std::string log_path);
  void StopFor(const ReceivedSignal& received);
  void ContinueStopping();
  void SignalAll(int signal);
  bool AnyRunning() const;
  bool Over() const;

  JobOutcome Judge() const;
  std::string LogPath(int rank) const;

  const JobPlan& plan_;
  SignalSource& signals_;
  Console& console_;
  JobDisplay& display_;
  JobToken token_;

  OwnGap own_gap_;
  double own_gaps_s_ = 0;
  double server_heard_at_ = 0;

  Phase phase_ = Phase::kServerStarting;
  double deadline_ = 0;          // of the present phase, unless it is kRunning or kStopping
  double early_exit_by_ = 0;     // a worker has ended with 0: the server must explain it until then
  std::vector<Member> members_;  // the server first
  std::vector<EndedProcess> ended_;
  LineReader reports_;
  RareLine bad_reports_;
  size_t dropped_reports_ = 0;
  std::optional<JobFailure> server_failure_;
  std::optional<events::Summary> summary_;
  std::vector<uint32_t> missing_;
  Observed observed_;  // at the first failure

  // Stages of stopping, as points in time.
  double terminate_server_at_ = 0, terminate_all_at_ = 0, kill_at_ = 0, give_up_at_ = 0;
  double stop_requested_at_ = 0;
  bool stop_requested_by_key_ = false;
  int stop_signal_ = 0;
  std::optional<JobFailure> found_;  // by this process
  std::string found_log_path_;
};

}  // namespace muster
