// The plan of a job, its processes as the supervisor sees them, and its outcome.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/hosts/remote_host.h"
#include "cli/job/run_dir.h"
#include "common/base/error.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"

namespace muster {

inline constexpr double kNever = 1e300;  // a time on the supervisor's clock

// The loss of a server that a signal from outside the job has killed, or that became silent. Its
// files are intact, so another server can resume from them. Unlike a wrong config, missing data or
// a NaN, such a failure need not happen again.
struct ServerLoss {
  std::string cause;            // "signal 9", "silent"
  std::optional<int64_t> step;  // the last reported step
  double at = 0;                // seconds, on CLOCK_MONOTONIC
};

struct JobPlan {
  std::string server_program, worker_program;
  const RunDir* dir;
  const config::Config* config;
  std::string config_path;  // an existing file that the processes read
  // One for each rank, if the job uses GPUs of this host; without a GPU for ranks on other hosts.
  std::vector<WorkerPlace> places;
  // Chooses where the replacement of an ended worker runs. Null: in the same place.
  std::function<WorkerPlace(uint32_t rank)> place_again;
  std::string endpoint;  // the address that workers connect to
  std::string bind;      // the address that the server listens at; empty: `endpoint`
  std::string token;
  bool resume = false;             // the server resumes from the newest checkpoint
  std::vector<ServerLoss> losses;  // losses of earlier servers, for the next one to record
  // The worker changes under those servers, and how workers ended: see JobOutcome.
  events::Summary changes;
  std::map<int64_t, std::string> ends;
  // Checkpoint folders. The server repeats the run from the first one, compares it with the others,
  // and writes nothing.
  std::vector<std::string> replay;
  // Set only if the workers are started by hand. Returns the lines to print when the server listens
  // at this endpoint. The server is then the only process on this host.
  std::function<std::vector<std::string>(const std::string& endpoint)> invite_workers;
  // Set only if the workers run on the nodes of a Slurm job. Returns the command that starts all of
  // them, for a server that listens at this endpoint. Its process is then the only member beside
  // the server.
  std::function<std::vector<std::string>(const std::string& endpoint)> srun;
  // Set only if some workers run on other hosts, reached by ssh. Ranks are in the order of hosts.
  const SshHosts* hosts = nullptr;
  std::vector<std::string> lost_hosts;  // under earlier servers; the job goes on without them
  // In a Slurm job, SIGUSR1 stops the run like SIGTERM, and Slurm itself kills what does not end.
  bool in_slurm = false;
  bool has_terminal = false;  // the launcher's controlling terminal, such as a salloc shell

  // Whether the launcher starts and replaces each worker.
  bool owns_workers() const { return !invite_workers && !srun; }
  int workers() const { return static_cast<int>(config->cluster().workers()); }
  // Whether to append to the logs, because the run is resumed or an earlier server wrote to them.
  bool goes_on() const { return resume || !losses.empty(); }
};

// The processes of a job on this host, in the order in which they were started: 0 is the server.
// Tests substitute members that are not processes.
class Members {
 public:
  virtual ~Members() = default;

  // Called once, when the server listens. Throws Error if a worker cannot be started; the workers
  // started before it stay members.
  virtual void StartWorkers(const std::string& endpoint) = 0;

  // Starts a replacement for the worker of this rank, which has ended. Throws Error, StartError if
  // it may work later.
  virtual void Replace(int rank) = 0;
  // Whether the host of this rank still answers.
  virtual bool CanReplace(int /*rank*/) const { return true; }

  virtual size_t size() const = 0;
  virtual int rank(size_t member) const = 0;  // or kServerRank, kSrunRank
  virtual pid_t pid(size_t member) const = 0;
  virtual bool running(size_t member) const = 0;
  virtual bool stopped(size_t member) const = 0;  // by SIGSTOP or a debugger; still `running`
  // Does nothing if the member has ended.
  virtual void Signal(size_t member, int signal) = 0;
  // Makes the server treat a stop from now on as a failure of the run, not as a user's request.
  virtual void TellServerOfFailure() = 0;

  // The last error that the process of this rank (-1: the server) reported, or "".
  virtual std::string LastWords(int rank) const = 0;
  // The log file to show for this rank; the server's log if the worker is not a member.
  virtual std::string LogPath(int rank) const = 0;
};

struct JobOutcome {
  ExitCode exit_code = ExitCode::kOk;
  int stop_signal = 0;  // the signal that ended the job, or 0
  std::optional<JobFailure> failure;
  std::string server_said;  // the server's report of the failure, if it differs from `failure`
  std::string log_path;     // log of the process that failed
  std::optional<events::Summary> summary;
  std::optional<ServerLoss> lost_server;  // set if the failure is the loss of the server
  bool could_not_start = false;           // the failure is that of a start (StartError)
  std::string not_restarted;              // why the lost server was not restarted
  std::map<int64_t, std::string> ends;  // how workers ended during the run, by pid: "killed by …"
  events::Summary changes;  // the worker changes under all servers; no other field is set
  std::vector<std::string> lost_hosts;  // see JobPlan
};

}  // namespace muster
