// Chooses and locks the GPUs of a job, from its settings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/gpu/job_gpus.h"
#include "cli/process/signal_source.h"
#include "common/config/config.h"
#include "proto/config_fwd.h"

namespace muster {

// The command-line option that requests GPUs, as typed, or "".
std::string TypedDevices(const std::vector<Setting>& settings);

struct CardTerms {
  std::string config_path;  // for errors
  std::vector<Setting> settings;
  std::string worker_program;
  double wait_s = 0;
};

// Plans the GPUs and applies the settings that follow from them to `config`, which is not resolved
// yet. Throws what JobGpus throws, and Error(kUsage) for --wait without GPUs.
std::shared_ptr<JobGpus> PlanCards(const CardTerms& terms, config::Config& config);

// Both print a message about GPUs, of one or more lines. The first writes to standard output, the
// second to standard error, for commands whose standard output holds only a result.
void SayInResult(const std::string& text);
void SayBesideResult(const std::string& text);

struct CardWait {
  double seconds = 0;
  void (*say)(const std::string& text);
};

// Locks the GPUs, if the job wants any, before any process of the job starts. A signal ends the
// wait.
void TakeCards(JobGpus& cards, const CardWait& wait, SignalSource& signals);

}  // namespace muster
