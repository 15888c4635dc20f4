#include "cli/job/job_cards.h"

#include <poll.h>

#include "cli/text/console.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/hardware.h"

namespace muster {
namespace {

// The settings that follow from the GPUs of the job, or from their absence.
std::vector<Setting> SettingsOf(const JobGpus& cards, const config::Config& config) {
  std::vector<Setting> settings;
  if (cards.wanted() && !config.cluster().has_workers()) {
    settings.push_back({"cluster.workers", std::to_string(cards.workers()), cards.origin()});
  }
  if (cards.named() && !config.worker().has_soft_placement()) {
    settings.push_back({"worker.soft_placement", "false", cards.origin()});
  }
  if (cards.wanted() && !config.worker().has_backend()) {
    settings.push_back({"worker.backend", "CUDA", cards.origin()});
  }
  return settings;
}

void SleepUnlessStopped(SignalSource& signals, double seconds) {
  pollfd request{.fd = signals.fd(), .events = POLLIN};
  if (::poll(&request, 1, static_cast<int>(seconds * 1000) + 1) <= 0) return;
  signals.ThrowIfStopped(" before the job had its GPUs; nothing was started");
}

}  // namespace

std::string TypedDevices(const std::vector<Setting>& settings) {
  std::string typed;
  for (const Setting& setting : settings) {
    if (setting.path == "worker.devices") typed = setting.origin;
  }
  return typed;
}

std::shared_ptr<JobGpus> PlanCards(const CardTerms& terms, config::Config& config) {
  auto cards = std::make_shared<JobGpus>(
      config, terms.config_path,
      GpuTerms{.typed = TypedDevices(terms.settings),
               .waits = terms.wait_s > 0,
               .no_backend = WhyNoGpuBackend(config, terms.worker_program)});
  if (terms.wait_s > 0 && !cards->asked()) {
    throw Error(ExitCode::kUsage,
                "--wait: no GPUs are requested, so there is nothing to wait for; add --devices "
                "(worker.devices)");
  }
  ChangeConfig(config, SettingsOf(*cards, config), terms.config_path);
  return cards;
}

void SayInResult(const std::string& text) { PrintResultAsIs(ShownLines(text)); }

void SayBesideResult(const std::string& text) { PrintError(text); }

void TakeCards(JobGpus& cards, const CardWait& wait, SignalSource& signals) {
  if (!cards.wanted()) return;
  cards.Take({.wait_s = wait.seconds, .say = wait.say, .sleep = [&](double seconds) {
                SleepUnlessStopped(signals, seconds);
              }});
}

}  // namespace muster
