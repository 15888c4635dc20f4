#include "launch/doctor/gpu_facts.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/error.h"
#include "common/base/join.h"
#include "launch/gpu/gpu_probe.h"
#include "launch/gpu/job_cards.h"
#include "launch/gpu/lock_folder.h"
#include "launch/process/json_program.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr double kOpenSeconds = 120;  // the driver may have to wake the GPU and load our kernels

// Of no job: these GPUs, to see whether Muster works on them.
config::Config OfDevices(const std::string& devices) {
  config::Config config;
  config.mutable_worker()->set_workers_per_gpu(1);
  config.mutable_worker()->set_devices(devices);
  config.mutable_worker()->set_soft_placement(true);
  return config;
}

// Of a worker that sees this GPU alone.
void OpenGpu(const GpuQuestion& question, const WorkerPlace& place, GpuFacts& facts) {
  std::vector<std::string> words{"--describe-gpu"};
  if (question.config != nullptr) {
    words.insert(words.end(), {"--config", question.config_path});
    for (const Setting& setting : question.settings) {
      words.insert(words.end(), {"--set", setting.path + "=" + setting.value});
    }
  }
  try {
    const auto lines =
        RunJsonProgram(question.worker_program, words, kOpenSeconds, place.environment);
    facts.backend = lines.at(0).value("arithmetic", "");
  } catch (const Error& error) {
    facts.backend_error = error.what();
  }
}

// Locks them, opens the first, and lets them go.
void TryGpus(const GpuQuestion& question, JobCards& cards, GpuFacts& facts) {
  try {
    facts.tickets = ReadTickets(LockFolder::OfHost());
    cards.Take({.others_choose_s = 1, .say = [](const std::string&) {}});
  } catch (const Error& error) {
    facts.take_error = error.what();
    return;
  }
  std::vector<std::string> taken;
  const std::vector<WorkerPlace> places = cards.Places();
  for (const WorkerPlace& place : places) {
    const std::string text = CardText(place.card);
    if (taken.empty() || taken.back() != text) taken.push_back(text);
  }
  facts.taken = Join(taken, ", ");
  OpenGpu(question, places.at(0), facts);
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
    const CardTerms terms{.typed = typed,
                          .no_backend = WhyNoGpuBackend(config, question.worker_program)};
    JobCards cards(config, question.config_path, terms);
    facts.job = cards.asked() && (question.config != nullptr || !typed.empty());
    facts.wanted = facts.job && !config.worker().devices().empty();
    if (cards.wanted()) {
      if (facts.job) facts.workers = cards.workers();
      TryGpus(question, cards, facts);
    } else if (cards.asked()) {
      facts.why_cpu = Join(cards.Lines(), "; ");
    } else if (!facts.seen.gpus.empty()) {
      JobCards any(OfDevices("auto:1"), "", {});
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
