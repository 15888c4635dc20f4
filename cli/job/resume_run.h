// `--resume`: finds the directory and the config of the run to resume.
#pragma once

#include <string>
#include <vector>

#include "cli/job/launch_command.h"
#include "cli/job/run_dir.h"
#include "proto/config.pb.h"

namespace muster {

// `--resume auto`, for a caller that repeats the same command, such as a service manager. Sets
// arguments.resume to run.dir if the run there has a checkpoint or is complete. Archives the files
// of any other run, and prints that. Throws Error(kUsage) without run.dir, or if the config keeps
// no checkpoints.
void ResumeOrBegin(LaunchArguments& arguments);

// Locks the directory of the run, and changes nothing else in it. Throws Error(kUsage) if there is
// no such run or no checkpoint, or if it is in use, and Error(kData) if the checkpoints belong to
// another run.
RunDir TakeUp(const LaunchArguments& arguments);

// The config in the newest checkpoint, as text. It may hold more than the config of the first
// launch: with batch_per_worker, the batch depends on the workers. Throws Error(kData) if no
// checkpoint is intact.
std::string ConfigToResume(const std::string& run_dir);

// Writes the config of the newest checkpoint to the run directory, and uses it for the job.
void KeepConfig(const RunDir& dir, LaunchArguments& arguments);

// Whether the two configs let the run end at different points.
bool EndsElsewhere(const config::Config& then, const config::Config& now);

// Throws Error(kUsage) if the run cannot continue with this config. Returns a remark for the
// header: the progress of the run.
std::string CheckTakenUp(const RunDir& dir, const config::Config& config);

// Chooses the steps that a resumed run traces. Steps named in `settings` must still be ahead;
// otherwise throws Error(kUsage) with the possible ones. By default, the run traces the same steps
// as a new run, counted from where it resumes, or its last steps if too few are left. A trace from
// an earlier launch is dropped if the run is past its first step.
void PlanTrace(const RunDir& dir, const std::vector<Setting>& settings, config::Config& config);

}  // namespace muster
