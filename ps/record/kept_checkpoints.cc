#include "ps/record/kept_checkpoints.h"

#include <algorithm>

namespace muster {

void KeptCheckpoints::Restore(const ResumePoint& resume) {
  generation_ = resume.next_generation;
  kept_ = resume.kept;
  newest_ = resume.checkpoint.name;
  newest_in_ = resume.checkpoint.reader->folder();
}

void KeptCheckpoints::PutAccuracies(checkpoint::State& state) const {
  for (const KeptCheckpoint& one : kept_) {
    if (!one.accuracy) continue;
    checkpoint::Evaluated& evaluated = *state.add_kept();
    evaluated.set_generation(one.name.generation);
    evaluated.set_step(one.name.step);
    evaluated.set_accuracy(*one.accuracy);
  }
}

std::vector<CheckpointName> KeptCheckpoints::ExpiredBy(const CheckpointName& name,
                                                       const config::Checkpoint& settings) const {
  std::vector<KeptCheckpoint> after = kept_;
  std::erase_if(after, [&](const auto& one) { return one.name == name; });
  after.push_back({name, std::nullopt});
  return TakeExpired(after, settings.keep_last(), settings.keep_best());
}

void KeptCheckpoints::Add(const CheckpointName& name, const std::vector<CheckpointName>& expired,
                          const std::string& folder) {
  newest_ = name;
  newest_in_ = folder;
  std::erase_if(kept_, [&](const auto& one) {
    return one.name == name || std::ranges::find(expired, one.name) != expired.end();
  });
  const bool is_evaluated = evaluated_ && evaluated_->first == name.step;
  kept_.push_back({name, is_evaluated ? std::optional(evaluated_->second) : std::nullopt});
}

void KeptCheckpoints::OnEvaluated(int64_t step, double accuracy) {
  evaluated_ = {step, accuracy};
  for (KeptCheckpoint& one : kept_) {
    if (one.name.step == step && one.name.generation == generation_) one.accuracy = accuracy;
  }
}

}  // namespace muster
