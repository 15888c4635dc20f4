// How a job of this launcher comes to its GPUs: from its settings to their locks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/gpu/job_gpus.h"
#include "cli/process/signal_source.h"
#include "common/config/config.h"
#include "proto/config_fwd.h"

namespace muster {

// How the cards were asked for on the command line, or "".
std::string TypedDevices(const std::vector<Setting>& settings);

// --devices cpu on the command line wins over the config's worker.backend.
void PreferTypedCpu(const std::vector<Setting>& settings, config::Config& config);

struct CardTerms {
  std::string config_path;  // in errors
  std::vector<Setting> settings;
  std::string worker_program;
  double wait_s = 0;
};

// Plans the cards, and sets in `config`, which is not resolved yet, what follows from them. Throws
// what JobGpus does, and Error(kUsage) for a wait for nothing.
std::shared_ptr<JobGpus> PlanCards(const CardTerms& terms, config::Config& config);

// Words about cards, of one line or more: on standard output, or on standard error where that is
// for a result alone.
void SayInResult(const std::string& text);
void SayBesideResult(const std::string& text);

struct CardWait {
  double seconds = 0;
  void (*say)(const std::string& text);
};

// Takes the cards, if there are some to take, before any process of the job. A signal ends the
// wait.
void TakeCards(JobGpus& cards, const config::Worker& worker, const CardWait& wait,
               SignalSource& signals);

}  // namespace muster
