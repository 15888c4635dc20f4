#include "ps/model_saver.h"

#include <fmt/core.h>

#include <filesystem>
#include <optional>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/early_stop.h"
#include "common/model/load_weights.h"
#include "ps/checkpoint_arenas.h"

namespace muster {
namespace {

// best.safetensors in a folder: of which step it is, or what is wrong with it.
struct BestFile {
  std::string path;
  std::optional<int64_t> step;
  std::string damage;
};

BestFile BestFileIn(const std::string& folder) {
  BestFile file{.path = folder + "/best.safetensors"};
  std::error_code ignored;
  if (!std::filesystem::exists(file.path, ignored)) return file;
  file.damage = DamageOf(file.path);
  if (file.damage.empty()) file.step = StepOf(SafetensorsReader(file.path).header().metadata);
  return file;
}

void Put(const EvaluationResult& result, ModelInfo& info) {
  const bool validates = result.set == wire::VALIDATION;
  if (IsAccuracy(result.accuracy)) {
    (validates ? info.validation_accuracy : info.test_accuracy) = result.accuracy;
  }
  (validates ? info.validation_loss : info.test_loss) = result.loss;
}

}  // namespace

void ModelSaver::OnEvaluated(int64_t step) {
  if (!writes() || progress_.best_step() != step) return;
  // No chunk of W(step) has been overwritten: a rank's blocks come before its losses, and without
  // these there is no update.
  MUSTER_CHECK(progress_.evaluated()->version == step);
  lost_.clear();
  const bool average = config_.evaluation().use_ema();
  writer_.WriteBest(average ? variables_.EvaluatedAverage() : variables_.Weights(step),
                    InfoOf(step, average));
}

void ModelSaver::Restore(const ResumePoint& resume) {
  const checkpoint::Progress& kept = resume.state().progress();
  if (!writes() || !kept.has_last_evaluation()) return;
  ModelInfo best{.step = kept.best_step(), .average = config_.evaluation().use_ema()};
  const bool validates = kept.last_evaluation().validation();
  if (IsAccuracy(kept.best_accuracy())) {
    (validates ? best.validation_accuracy : best.test_accuracy) = kept.best_accuracy();
  }
  if (kept.has_best_loss()) {
    (validates ? best.validation_loss : best.test_loss) = kept.best_loss();
  }
  const std::string& dir = config_.run().dir();
  const BestFile file = BestFileIn(dir);
  damaged_ = file.damage;
  if (file.step == best.step) return writer_.KeepBest(best);
  if (file.step > best.step) return;  // a later one was better, and will be made again
  if (WriteBestAgain(resume, best)) {
    if (!damaged_.empty()) damaged_ += "; it is written again in " + dir;
    return;
  }
  lost_ = fmt::format(
      "{}: the weights of the best evaluation, at step {}{}, are in no "
      "file and in no checkpoint that is left; the run can be repeated with the same bits: muster "
      "launch {}",
      damaged_.empty() ? file.path : damaged_, best.step,
      IsAccuracy(kept.best_accuracy()) ? fmt::format(" ({:.2f} %)", 100 * kept.best_accuracy())
                                       : "",
      ShellWord(dir + "/config.txtpb"));
  damaged_.clear();
  LogWarning("{}", lost_);
}

bool ModelSaver::WriteBestAgain(const ResumePoint& resume, const ModelInfo& best) {
  // Any checkpoint of that step has them, whether they had been evaluated by then or not.
  if (resume.state().step() == best.step) {
    WriteBestOf(*resume.checkpoint.reader, best);
    return true;
  }
  for (const KeptCheckpoint& one : resume.kept) {
    if (one.name.step != best.step) continue;
    try {
      WriteBestOf(CheckpointReader(CheckpointsFolder(config_.run().dir()) + "/" + one.name.Text()),
                  best);
      return true;
    } catch (const Error& error) {
      LogWarning("{}", error.what());
    }
  }
  return false;
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
  if (average != config_.evaluation().use_ema()) return info;
  for (const auto& last : {progress_.evaluated(), progress_.tested()}) {
    if (last && last->version == step) Put(*last, info);
  }
  return info;
}

}  // namespace muster
