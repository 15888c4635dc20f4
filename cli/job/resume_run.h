// `--resume`: a run's own directory and config, for it to go on.
#pragma once

#include <string>
#include <vector>

#include "cli/job/launch_command.h"
#include "cli/job/run_dir.h"
#include "proto/config.pb.h"

namespace muster {

// `--resume auto`, for whoever starts the same command again and again, as a service manager does:
// sets arguments.resume to run.dir if a run has left a checkpoint there, or is complete. The files
// of any other one are put aside, which is printed. Throws Error(kUsage) without run.dir, or where
// no checkpoints are kept.
void ResumeOrBegin(LaunchArguments& arguments);

// Takes the directory of the run; nothing in it changes. Throws Error(kUsage): there is no such
// run, no checkpoint, or somebody uses it; and Error(kData) if the checkpoints are another run's.
RunDir TakeUp(const LaunchArguments& arguments);

// The config in the newest checkpoint, as text. What the run was started with may say less: with
// batch_per_worker the batch follows the workers. Throws Error(kData) if no checkpoint is whole.
std::string ConfigToResume(const std::string& run_dir);

// Makes the config of the run, as its newest checkpoint holds it, that of its directory and of the
// job.
void KeepConfig(const RunDir& dir, LaunchArguments& arguments);

// Whether what says when the run ends is not what it was: somebody wants it to go on.
bool EndsElsewhere(const config::Config& then, const config::Config& now);

// Throws Error(kUsage) if the run cannot go on with this config, which settings have changed.
// Returns a remark for the header: what it goes on from.
std::string CheckTakenUp(const RunDir& dir, const config::Config& config);

// Which steps a run that goes on traces: those that are asked for with it, in `settings`, must be
// still to come, else Error(kUsage) says which are. If none are named, they are those that a new
// run would trace, counted from where this one goes on, or its last ones. What an earlier launch
// asked for is left out where the run is past its first step.
void PlanTrace(const RunDir& dir, const std::vector<Setting>& settings, config::Config& config);

}  // namespace muster
