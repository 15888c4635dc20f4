// `muster launch` and `muster server`: one job from its config to its summary.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/job/dry_run.h"
#include "cli/job/workers_by_hand.h"
#include "cli/process/held_file.h"
#include "common/config/config.h"

namespace muster {

struct PreparedJob;
class SignalSource;

struct LaunchArguments {
  std::string config_path;
  std::shared_ptr<const HeldFile> held_config = {};  // that config_path is of, where no disk has it
  std::vector<Setting> settings;                     // --set and the options that are short for one
  std::string server_program, worker_program;
  std::string resume;  // the directory of the run to go on with, instead of config_path
  // Go on with the run in run.dir if it has left a checkpoint, else begin it there.
  bool resume_or_begin = false;
  int repeat = 0;  // 0: one run; N: a series of N with consecutive seeds
  bool log_placement = false;
  bool verbose = false;  // a dry run shows every setting, too
  double wait_s = 0;     // for cards (worker.devices) to come free
  std::optional<WorkersByHand> by_hand;
  // Looks into the data. Empty: the data are on other hosts.
  std::function<DataCount(const config::Config&)> count_data;
  // Measures what data.preprocess.measure_mean_stddev asks for. Returns lines for people.
  std::function<std::vector<std::string>(config::Config&)> measure;
  // What is done with the job, checked and with its GPUs, in place of a run; returns the exit code.
  // The config is that of a run then.
  std::function<int(const PreparedJob& job, SignalSource& signals)> in_place_of_run;
};

// Runs the job, or the series of jobs, and returns the launcher's exit code. Everything that is
// wrong with the config, the data, the run directory or the installation throws Error before any
// process is started. Called from the main thread, while there is no other one.
int RunLaunch(const LaunchArguments& arguments);

// Prints what RunLaunch would run. Nothing is started or written.
int DryRun(const LaunchArguments& arguments);

}  // namespace muster
