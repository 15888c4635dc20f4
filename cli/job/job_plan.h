// What a job is told, and what becomes of it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/job/run_dir.h"
#include "cli/job/server_loss.h"
#include "common/base/error.h"
#include "common/base/job_failure.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"

namespace muster {

struct JobPlan {
  std::string server_program, worker_program;
  const RunDir* dir;
  std::string config_path;  // that the processes read; it is there already
  int workers = 1;
  std::vector<WorkerPlace> places;  // of each rank that has a card; empty: none has
  // Where the next worker of a rank runs after one has ended. Null: where that one ran.
  std::function<WorkerPlace(uint32_t rank)> place_again;
  std::string endpoint;  // what workers connect to; the server is told to listen there …
  std::string bind;      // … or here, if not empty
  std::string token;
  bool resume = false;             // the server goes on from the newest checkpoint
  std::vector<ServerLoss> losses;  // of its servers so far, for the next one to write down
  // Changes of the workers under those servers, and how workers ended: see JobOutcome.
  events::Summary changes;
  std::map<int64_t, std::string> ends;
  bool evaluate = false;  // the server has the weights evaluated once, and trains nothing
  // Set for a server whose workers are started by hand: what to print when it listens at this
  // endpoint. The server is then the only process here.
  std::function<std::vector<std::string>(const std::string& endpoint)> invite_workers;
  // cluster.on_lost_worker, and how many workers within how long may be lost with REPLACE.
  config::Cluster::OnLostWorker on_lost = config::Cluster::REPLACE;
  size_t max_restarts = 10;
  double restart_window_s = 600;
  double start_s = 60;    // deadline for its answer, and for all workers to join
  double silence_s = 20;  // the server reports something each second
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
