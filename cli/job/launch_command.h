// `muster launch` and `muster server`: one job from its config to its summary.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster/slurm_job.h"
#include "cli/hosts/remote_host.h"
#include "cli/job/dry_run.h"
#include "cli/job/workers_by_hand.h"
#include "cli/process/held_file.h"
#include "common/config/config.h"

namespace muster {

struct PreparedJob;
class SignalSource;

struct LaunchArguments {
  std::string config_path;
  bool has_config =
      true;  // otherwise config_path is only the program that the launch is named after
  std::shared_ptr<const HeldFile> held_config = {};  // file at config_path, if it is not on a disk
  std::vector<Setting> settings;                     // --set and its shorthands
  std::string server_program, worker_program;
  std::string resume;  // the directory of the run to resume, instead of config_path
  // Resume the run in run.dir if it has a checkpoint; otherwise start it there.
  bool resume_or_begin = false;
  int repeat = 0;  // 0: one run; N: a series of N with consecutive seeds
  bool log_placement = false;
  bool verbose = false;  // a dry run prints every setting, too, and the summary all rows
  double wait_s = 0;     // the longest wait for free GPUs (worker.devices)
  std::optional<WorkersByHand> by_hand;
  std::optional<SshHosts> hosts;  // set if some workers run on other hosts, reached by ssh
  std::optional<SlurmJob> slurm;  // the job around this process, unless the user ignores it
  // Counts the samples. Empty: the data are on other hosts.
  std::function<DataCount(const config::Config&)> count_data;
  // Measures mean and stddev for data.preprocess.measure_mean_stddev. Returns lines to print.
  std::function<std::vector<std::string>(config::Config&)> measure;
  // Called instead of running the job, when the job has been checked and has its GPUs. Returns the
  // exit code. In this case, the config is that of an earlier run.
  std::function<int(const PreparedJob& job, SignalSource& signals)> in_place_of_run;

  // Whether the workers run on the nodes of a Slurm job.
  bool in_step() const { return slurm && !slurm->is_here; }
  // Whether the workers may run on other hosts.
  bool elsewhere() const { return by_hand || in_step() || hosts; }
};

// The directory that a launch of this config uses; "": a new one below runs/. Throws Error(kUsage)
// if the config is wrong.
std::string RunDirFor(const LaunchArguments& arguments);

// Runs the job, or the series of jobs, and returns the launcher's exit code. Throws Error for a
// wrong config, wrong data, an unusable run directory or an incomplete installation before it
// starts any process. Call it from the main thread while there is no other thread.
int RunLaunch(const LaunchArguments& arguments);

// Prints what RunLaunch would run, without starting or writing anything.
int DryRun(const LaunchArguments& arguments);

}  // namespace muster
