#include "ps/model_saver.h"

#include "common/base/arena.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "ps/checkpoint_arenas.h"

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

void ModelSaver::Restore(const ResumePoint& resume) {
  const checkpoint::Progress& kept = resume.state().progress();
  if (!writes() || !kept.has_last_evaluation()) return;
  ModelInfo best{.step = kept.best_step(),
                 .average = config_.evaluation().use_ema(),
                 .test_accuracy = kept.best_accuracy()};
  const checkpoint::Evaluated& last = kept.last_evaluation();
  if (last.step() == best.step) best.test_loss = last.loss();
  const std::optional<int64_t> there = writer_.StepOfBest();
  if (there == best.step) return writer_.KeepBest(best);
  if (there && *there > best.step) return;  // a later one was better, and will be made again
  // Any checkpoint of that step has them, whether they had been evaluated by then or not.
  if (resume.state().step() == best.step) return WriteBestOf(*resume.checkpoint.reader, best);
  for (const KeptCheckpoint& one : resume.kept) {
    if (one.name.step != best.step) continue;
    try {
      const std::string folder = CheckpointsFolder(config_.run().dir()) + "/" + one.name.Text();
      return WriteBestOf(CheckpointReader(folder), best);
    } catch (const Error& error) {
      LogWarning("{}", error.what());
    }
  }
  LogWarning(
      "{}/best.safetensors: the weights of step {}, the best evaluation so far, are in no file",
      config_.run().dir(), best.step);
}

void ModelSaver::WriteBestOf(const CheckpointReader& reader, ModelInfo info) {
  Arena weights(graph_.arena_floats());
  ReadArena(reader, info.average ? "average" : "weights", graph_.layout(), weights.floats());
  info.updates = reader.state().updates();
  LogInfo("the best weights so far, of step {}, are written again from {}", info.step,
          reader.folder());
  writer_.WriteBest(weights.floats(), info);
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
