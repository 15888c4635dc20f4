// What a job is told, its processes as the supervisor sees them, and what becomes of it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/job/run_dir.h"
#include "common/base/error.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"

namespace muster {

inline constexpr double kNever = 1e300;  // on the supervisor's clock

// A server that was lost: by a signal that nobody of the job sent, or because it said nothing any
// more. What it kept on the disk is whole, and another one can go on from there; so it is no
// failure that would happen again by itself, as a wrong config, missing data or a NaN would.
struct ServerLoss {
  std::string cause;            // "signal 9", "silent"
  std::optional<int64_t> step;  // that was heard of last
  double at = 0;                // seconds, on CLOCK_MONOTONIC
};

struct JobPlan {
  std::string server_program, worker_program;
  const RunDir* dir;
  const config::Config* config;
  std::string config_path;          // that the processes read; it is there already
  std::vector<WorkerPlace> places;  // of each rank that has a card; empty: none has
  // Where the next worker of a rank runs after one has ended. Null: where that one ran.
  std::function<WorkerPlace(uint32_t rank)> place_again;
  std::string endpoint;  // what workers connect to; the server is told to listen there
  std::string bind;      // replaces the endpoint, unless empty
  std::string token;
  bool resume = false;             // the server goes on from the newest checkpoint
  std::vector<ServerLoss> losses;  // of its servers so far, for the next one to write down
  // Changes of the workers under those servers, and how workers ended: see JobOutcome.
  events::Summary changes;
  std::map<int64_t, std::string> ends;
  // Folders of checkpoints: the server does the run again from the first one on, compares it with
  // the others, and writes nothing.
  std::vector<std::string> replay;
  // Set for a server whose workers are started by hand: what to print when it listens at this
  // endpoint. The server is then the only process here.
  std::function<std::vector<std::string>(const std::string& endpoint)> invite_workers;

  int workers() const { return static_cast<int>(config->cluster().workers()); }
  // Logs are appended to: the run goes on, or a server before this one has written them.
  bool goes_on() const { return resume || !losses.empty(); }
};

// The processes of a job on this host, in the order in which they were started: 0 is the server.
// Tests have members that are no processes.
class Members {
 public:
  virtual ~Members() = default;

  // Called once, when the server listens. Throws Error where one cannot be started; those before it
  // are members then.
  virtual void StartWorkers(const std::string& endpoint) = 0;

  // The worker of this rank has ended: another one takes its place. Throws Error.
  virtual void Replace(int rank) = 0;

  virtual size_t size() const = 0;
  virtual int rank(size_t member) const = 0;  // -1: the server
  virtual pid_t pid(size_t member) const = 0;
  virtual bool running(size_t member) const = 0;
  virtual bool stopped(size_t member) const = 0;  // by SIGSTOP or a debugger; it still runs
  // Nothing happens to one that has ended.
  virtual void Signal(size_t member, int signal) = 0;
  // Should the server be stopped from now on, its run has failed: nobody wished it to end.
  virtual void TellServerOfFailure() = 0;

  // What the process of this rank (-1: the server) last said about its failure, or "".
  virtual std::string LastWords(int rank) const = 0;
  // The file to show for it; the server's for a worker that is no member.
  virtual std::string LogPath(int rank) const = 0;
};

struct JobOutcome {
  ExitCode exit_code = ExitCode::kOk;
  int stop_signal = 0;  // the signal that ended the job, if one did
  std::optional<JobFailure> failure;
  std::string server_said;  // the server's own words on that, where they are not the failure's
  std::string log_path;     // of the process that failed
  std::optional<events::Summary> summary;
  std::optional<ServerLoss> lost_server;  // what the failure is, if it is that
  std::string not_restarted;              // why there was no other one in its place
  std::map<int64_t, std::string> ends;  // of workers that ended on the way, by pid: "killed by …"
  events::Summary changes;              // of the workers, under all servers: nothing else is set
};

}  // namespace muster
