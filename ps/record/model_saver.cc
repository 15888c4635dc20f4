#include "ps/record/model_saver.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/early_stop.h"
#include "common/model/load_weights.h"
#include "common/model/write_model.h"
#include "ps/record/checkpoint_arenas.h"

namespace muster {
namespace {

constexpr const char* kBest = "best.safetensors";
constexpr std::array<const char*, 4> kOrder = {"model.safetensors", "model-raw.safetensors",
                                               "model-ema.safetensors", kBest};

// best.safetensors in a folder: its step, or what is wrong with it.
struct BestFile {
  std::string path;
  std::optional<int64_t> step;
  std::string damage;
};

BestFile BestFileIn(const std::string& folder) {
  BestFile file{.path = fmt::format("{}/{}", folder, kBest)};
  std::error_code ignored;
  if (!std::filesystem::exists(file.path, ignored)) return file;
  file.damage = DamageOf(file.path);
  if (file.damage.empty()) file.step = StepOf(SafetensorsReader(file.path).header().metadata);
  return file;
}

void Put(const EvaluationResult& result, ModelInfo& info) {
  const bool validates = result.set == wire::VALIDATION;
  if (result.accuracy) {
    (validates ? info.validation_accuracy : info.test_accuracy) = result.accuracy;
  }
  (validates ? info.validation_loss : info.test_loss) = result.loss;
}

}  // namespace

void ModelSaver::OnEvaluated(int64_t step) {
  if (!writes() || progress_.evaluations().best_step() != step) return;
  // W(step) has not been overwritten: each rank sends its blocks before its losses, and an update
  // needs the losses.
  MUSTER_CHECK(progress_.evaluations().last()->version == step);
  lost_.clear();
  const bool average = config_.evaluation().use_ema();
  WriteBest(average ? variables_.EvaluatedAverage() : variables_.Weights(step),
            InfoOf(step, average));
}

void ModelSaver::Restore(const ResumePoint& resume) {
  const checkpoint::Progress& kept = resume.state().progress();
  if (!writes() || !kept.has_last_evaluation() || kept.best_step() == 0) return;
  ModelInfo best{.step = kept.best_step(), .average = config_.evaluation().use_ema()};
  const bool validates = kept.last_evaluation().validation();
  const bool by_loss = IsByLoss(kept.last_evaluation());
  if (!by_loss) {
    (validates ? best.validation_accuracy : best.test_accuracy) = kept.best_accuracy();
  }
  if (kept.has_best_loss()) {
    (validates ? best.validation_loss : best.test_loss) = kept.best_loss();
  }
  const std::string& dir = config_.run().dir();
  const BestFile file = BestFileIn(dir);
  if (file.step == best.step) return Note(kBest, best, "");
  if (WriteBestAgain(resume, best)) {
    if (!file.damage.empty()) recorder_.Warn(file.damage + "; rewriting it in " + dir);
    return;
  }
  lost_ = fmt::format(
      "{}: the weights of the best evaluation, at step {}{}, are lost: no file and no remaining "
      "checkpoint contains them. To reproduce them with the same bits, run: muster launch {}",
      file.damage.empty() ? file.path : file.damage, best.step,
      by_loss ? "" : fmt::format(" ({:.2f} %)", 100 * kept.best_accuracy()),
      ShellWord(dir + "/config.txtpb"));
  // A later file is of steps that this run repeats and will probably write again. They are lost
  // only if it ends before.
  if (file.step <= best.step) recorder_.Warn(lost_);
}

bool ModelSaver::WriteBestAgain(const ResumePoint& resume, const ModelInfo& best) {
  // Any checkpoint of that step contains the best weights, evaluated or not.
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
  LogInfo("rewriting the best weights so far (step {}) from {}", info.step, reader.folder());
  WriteBest(weights.floats(), info);
}

void ModelSaver::WriteBest(std::span<const float> weights, const ModelInfo& info) {
  try {
    Best best{TakeArena(), info};
    std::memcpy(best.weights.floats().data(), weights.data(), weights.size_bytes());
    const std::lock_guard lock(mutex_);
    waiting_ = std::move(best);
  } catch (const std::bad_alloc&) {  // must not end the run
    return MissBest(info.step);
  }
  SubmitBest();
}

// Called when there is no memory for a copy. There is nothing to retry.
void ModelSaver::MissBest(int64_t step) {
  const std::string trouble =
      fmt::format("{}/{}: out of memory for a copy of the weights of step {}", config_.run().dir(),
                  kBest, step);
  std::unique_lock lock(mutex_);
  const bool first = std::exchange(troubles_[kBest], trouble).empty();
  retry_ = {};
  lock.unlock();
  if (first) recorder_.Warn(trouble);
}

// Reuses the buffer of older weights that are no longer needed.
Arena ModelSaver::TakeArena() {
  const std::lock_guard lock(mutex_);
  Arena& free = waiting_ ? waiting_->weights : spare_;
  Arena arena = free.floats().empty() ? Arena(graph_.arena_floats()) : std::move(free);
  waiting_.reset();
  return arena;
}

void ModelSaver::SubmitBest() {
  if (writes()) files_.Submit([this] { WriteWaitingBest(); });
}

void ModelSaver::SubmitBestIfDue() {
  std::unique_lock lock(mutex_);
  if (!retry_.IsDue()) return;
  lock.unlock();
  SubmitBest();
}

void ModelSaver::WriteWaitingBest() {
  std::unique_lock lock(mutex_);
  std::optional<Best> best = std::exchange(waiting_, std::nullopt);
  lock.unlock();
  if (!best) return;
  const bool written = Write(kBest, best->weights.floats(), best->info);
  lock.lock();
  if (written || waiting_) {
    spare_ = std::move(best->weights);
  } else {
    waiting_ = std::move(best);
  }
}

std::future<void> ModelSaver::SaveLast(int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    retry_.End();
  }
  SubmitBest();
  const bool use_average = config_.evaluation().use_ema();
  const auto save = [&](const char* file, bool average) {
    const std::span<const float> weights =
        average ? variables_.Average(variables_.updates()) : variables_.Weights(step);
    files_.Submit(
        [this, file, weights, info = InfoOf(step, average)] { (void)Write(file, weights, info); });
  };
  save("model.safetensors", use_average);
  if (variables_.has_average()) {
    save(use_average ? "model-raw.safetensors" : "model-ema.safetensors", !use_average);
  }
  const auto done = std::make_shared<std::promise<void>>();
  files_.Submit([done] { done->set_value(); });
  return done->get_future();
}

bool ModelSaver::Write(const std::string& name, std::span<const float> weights, ModelInfo info) {
  const std::string path = config_.run().dir() + "/" + name;
  try {
    info.weights_hash = HashVariables(graph_.layout(), weights);
    WriteModel(path, graph_, weights, info.updates, ModelMetadata(config_, graph_, info));
  } catch (const std::exception& error) {  // including bad_alloc
    Note(name, info, error.what());
    return false;
  }
  LogInfo("{}: saved the weights of step {}{}", path, info.step, info.average ? ", averaged" : "");
  Note(name, info, "");
  return true;
}

void ModelSaver::Note(const std::string& name, const ModelInfo& info, const std::string& trouble) {
  const std::lock_guard lock(mutex_);
  troubles_[name] = trouble;
  if (name == kBest && retry_.Note(trouble)) {
    recorder_.Notice(trouble + " (the best weights so far); retrying later");
  }
  if (!trouble.empty()) return;
  events::Summary::Model& model = saved_[std::ranges::find(kOrder, name) - kOrder.begin()];
  model.Clear();
  model.set_file(name);
  model.set_step(info.step);
  model.set_average(info.average);
  if (info.validation_accuracy) model.set_validation_accuracy(*info.validation_accuracy);
  if (info.test_accuracy) model.set_test_accuracy(*info.test_accuracy);
}

std::map<std::ptrdiff_t, events::Summary::Model> ModelSaver::saved() const {
  const std::lock_guard lock(mutex_);
  return saved_;
}

std::string ModelSaver::trouble() const {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const auto& [file, why] : troubles_) all = JoinTroubles(all, why);
  return all;
}

ModelInfo ModelSaver::InfoOf(int64_t step, bool average) const {
  ModelInfo info{.step = step, .updates = variables_.updates(), .average = average};
  if (average != config_.evaluation().use_ema()) return info;
  for (const auto& last : {progress_.evaluations().last(), progress_.evaluations().tested()}) {
    if (last && last->version == step) Put(*last, info);
  }
  return info;
}

}  // namespace muster
