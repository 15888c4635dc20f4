#include "ps/model_saver.h"

#include "common/base/error.h"

namespace muster {

void ModelSaver::OnEvaluated(int64_t step) {
  if (!writes() || progress_.best_step() != step) return;
  // No chunk of W(step) has been overwritten: a rank's blocks come before its losses, and without
  // these there is no update.
  MUSTER_CHECK(progress_.evaluated()->version == step);
  const bool average = config_.evaluation().use_ema();
  writer_.WriteBest(average ? variables_.EvaluatedAverage() : variables_.Weights(step),
                    InfoOf(step, average));
}

void ModelSaver::Restore(const checkpoint::Progress& kept) {
  if (!kept.has_last_evaluation()) return;
  writer_.FindBest({.step = kept.best_step(),
                    .average = config_.evaluation().use_ema(),
                    .test_accuracy = kept.best_accuracy()});
}

void ModelSaver::SaveLast(int64_t step) {
  if (!writes()) return;
  const bool use_average = config_.evaluation().use_ema();
  const auto save = [&](const char* file, bool average) {
    writer_.WriteLast(file,
                      average ? variables_.Average(variables_.updates()) : variables_.Weights(step),
                      InfoOf(step, average));
  };
  save("model.safetensors", use_average);
  if (!variables_.has_average()) return;
  save(use_average ? "model-raw.safetensors" : "model-ema.safetensors", !use_average);
}

ModelInfo ModelSaver::InfoOf(int64_t step, bool average) const {
  ModelInfo info{.step = step, .updates = variables_.updates(), .average = average};
  const std::optional<EvaluationResult>& last = progress_.evaluated();
  if (last && last->version == step && average == config_.evaluation().use_ema()) {
    info.test_accuracy = last->accuracy;
    info.test_loss = last->loss;
  }
  return info;
}

}  // namespace muster
