#include "cli/doctor/gpu_facts.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/gpu/gpu_probe.h"
#include "cli/gpu/job_gpus.h"
#include "cli/gpu/lock_folder.h"
#include "cli/process/held_file.h"
#include "cli/process/json_program.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr double kOpenSeconds = 120;  // the driver may have to wake the GPU and load our kernels

// Of no job: these GPUs, to see whether Muster works on them.
config::Config OfDevices(const std::string& devices) {
  config::Config config;
  config.mutable_worker()->set_workers_per_gpu(1);
  config.mutable_worker()->set_devices(devices);
  return config;
}

// From a worker that sees this GPU alone and compares what it computes there with the CPU. False if
// that does not work.
bool TryGpu(const GpuQuestion& question, const WorkerPlace& place, GpuFacts& facts) {
  std::vector<std::string> words{"--describe-gpu"};
  std::optional<HeldFile> held;
  if (question.config != nullptr) {
    config::Config config = *question.config;
    ResolveForMachine(config, AvailableCores());
    held = HeldFile::OfText(ConfigText(config));
    words.insert(words.end(), {"--config", held->path()});
  }
  try {
    const auto lines =
        RunJsonProgram(question.worker_program, words, kOpenSeconds, place.environment);
    facts.backend = lines.at(0).value("arithmetic", "");
    return true;
  } catch (const Error& error) {
    facts.backend_error = fmt::format("GPU {}: {}", place.gpu.index, error.what());
    facts.computes_wrongly = error.code() == ExitCode::kRefused;
    return false;
  }
}

// Locks them, computes on each, and lets them go.
void TryGpus(const GpuQuestion& question, JobGpus& gpus, GpuFacts& facts) {
  try {
    facts.tickets = ReadTickets(LockFolder::OfHost());
    gpus.Take({.others_choose_s = 1});
  } catch (const Error& error) {
    facts.take_error = error.what();
    return;
  }
  std::string last;
  bool works = true;
  for (const WorkerPlace& place : gpus.Places()) {
    if (std::exchange(last, place.gpu.uuid) == place.gpu.uuid) continue;
    facts.taken += (facts.taken.empty() ? "" : ", ") + GpuText(place.gpu);
    works = works && TryGpu(question, place, facts);
  }
}

}  // namespace

GpuFacts ReadGpuFacts(const GpuQuestion& question) {
  GpuFacts facts{.seen = OpenNvml()->Look()};
  std::string typed;
  config::Config config = OfDevices("auto:1");
  for (const Setting& setting : question.settings) {
    if (setting.path != "worker.devices") continue;
    typed = setting.origin;
    if (question.config == nullptr) config = OfDevices(setting.value);
  }
  if (question.config != nullptr) config = *question.config;
  try {
    const GpuTerms terms{.typed = typed,
                         .no_backend = WhyNoGpuBackend(config, question.worker_program)};
    JobGpus gpus(config, question.config_path, terms);
    facts.job = gpus.asked() && (question.config != nullptr || !typed.empty());
    facts.wanted = facts.job && !config.worker().devices().empty();
    if (gpus.wanted()) {
      if (facts.job) facts.workers = gpus.workers();
      TryGpus(question, gpus, facts);
    } else if (gpus.asked()) {
      facts.why_cpu = Join(gpus.Lines(), "; ");
    } else if (!facts.seen.gpus.empty()) {
      config::Config idle = OfDevices("auto:1");
      idle.mutable_worker()->set_soft_placement(true);  // the job needs none
      JobGpus any(idle, "", {});
      if (any.wanted()) TryGpus(question, any, facts);
    }
  } catch (const Error& error) {
    if (error.code() == ExitCode::kUsage) throw;
    facts.job = facts.wanted = true;
    facts.take_error = error.what();
  }
  return facts;
}

}  // namespace muster
