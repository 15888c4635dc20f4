#include "common/config/job_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "common/base/count_text.h"
#include "common/config/config.h"

namespace muster {

std::optional<int64_t> JobFacts::Steps() const {
  if (run().has_steps()) return run().steps();
  return plan ? std::optional(plan->total_steps) : std::nullopt;
}

std::optional<int64_t> JobFacts::Epochs() const {
  if (run().has_epochs()) return run().epochs();
  return plan ? std::optional(plan->total_steps / plan->StepsPerEpoch()) : std::nullopt;
}

std::optional<int64_t> JobFacts::Samples() const {
  if (plan) return plan->At(plan->total_steps).samples_before;
  if (!run().has_steps()) return std::nullopt;
  return run().steps() * ResolveBatch(config).global_batch;
}

std::string JobFacts::RunOf(const std::optional<int64_t>& count, const char* noun) const {
  return fmt::format("the run has {} {}", FormatCount(*count), noun);
}

bool JobFacts::Decays() const {
  if (config.optimizer().weight_decay() > 0) return true;
  return std::ranges::any_of(config.model().layer(), [](const config::Layer& layer) {
    return layer.conv2d().weights().weight_decay() > 0 ||
           layer.conv2d().bias().weight_decay() > 0 || layer.dense().weights().weight_decay() > 0 ||
           layer.dense().bias().weight_decay() > 0 ||
           layer.batch_norm().scale().weight_decay() > 0 ||
           layer.batch_norm().shift().weight_decay() > 0;
  });
}

bool JobFacts::EvaluatesBeforeTheEnd() const {
  const int64_t every_steps = evaluation().every_steps(), every = evaluation().every_epochs();
  if (every_steps > 0 && (!Steps() || every_steps < *Steps())) return true;
  if (every == 0) return false;
  if (plan) return every * plan->StepsPerEpoch() < plan->total_steps;
  return !run().has_epochs() || every < run().epochs();
}

std::optional<int64_t> JobFacts::EvaluationsBeforeTheEnd() const {
  if (!plan) return std::nullopt;
  const int64_t last = plan->total_steps - 1;
  const int64_t epochs = evaluation().every_epochs() * plan->StepsPerEpoch();
  const int64_t steps = evaluation().every_steps();
  int64_t count = (epochs > 0 ? last / epochs : 0) + (steps > 0 ? last / steps : 0);
  if (epochs > 0 && steps > 0) {  // where both are due: at multiples of both
    count -= last / epochs / (steps / std::gcd(epochs, steps));
  }
  return count;
}

std::string JobFacts::WaitsTooLong(int64_t patience) const {
  const auto before = EvaluationsBeforeTheEnd();
  if (!before || patience < *before) return "";
  return fmt::format("the run has {} evaluation{} before its end", FormatCount(*before),
                     *before == 1 ? "" : "s");
}

}  // namespace muster
