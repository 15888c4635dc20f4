// Writes the weights of a run to the run directory:
//
//   model.safetensors       the weights after the last complete step, as evaluations use them: the
//                           moving average with evaluation.use_ema
//   best.safetensors        the weights of the best evaluation
//   model-raw.safetensors   with use_ema: the raw weights after the last step
//   model-ema.safetensors   with ema_decay but without use_ema: the average
//
// Owner: the run keeper. Used on the loop thread. Another thread writes copies of the best weights,
// and the last weights, which no longer change. Does nothing if run.dir is empty.
#pragma once

#include <cstddef>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/background_thread.h"
#include "common/base/memory.h"
#include "common/base/retry.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/model/model_metadata.h"
#include "ps/record/progress.h"
#include "ps/record/recorder.h"
#include "ps/record/resume.h"
#include "ps/update/variables.h"

namespace muster {

class ModelSaver {
 public:
  // All must outlive this object.
  ModelSaver(const config::Config& config, const Graph& graph, const Variables& variables,
             const Progress& progress, BackgroundThread& files, Recorder& recorder)
      : config_(config),
        graph_(graph),
        variables_(variables),
        progress_(progress),
        files_(files),
        recorder_(recorder) {}

  // The last evaluation in `progress`, of W(step), has ended. If it is the best one, copies its
  // weights on the loop thread, which is idle while the workers compute the next step. Another
  // thread writes the copy.
  void OnEvaluated(int64_t step);
  // Call when a run is resumed. If best.safetensors is missing, damaged or of another step,
  // rewrites it from a checkpoint that has the weights. Warns about damaged and lost files.
  void Restore(const ResumePoint& resume);
  // A message if a resumed run has lost its best weights, or "". Cleared by a better evaluation.
  const std::string& lost() const { return lost_; }
  // Writes best.safetensors. While one copy is being written, another may wait; a newer one
  // replaces it.
  void WriteBest(std::span<const float> weights, const ModelInfo& info);
  // Retries pending best weights. Called before a checkpoint that refers to them, because resuming
  // from it does not produce them again, and periodically by SubmitBestIfDue.
  void SubmitBest();
  void SubmitBestIfDue();
  // Writes the final weights, W(step). Call when the weights no longer change. The future is ready
  // when everything has been written or has failed.
  std::future<void> SaveLast(int64_t step);

  bool writes() const { return !config_.run().dir().empty(); }
  // The written files, in the order of the summary.
  std::map<std::ptrdiff_t, events::Summary::Model> saved() const;
  // Which files could not be written and why, or "".
  std::string trouble() const;

 private:
  struct Best {
    Arena weights;
    ModelInfo info;
  };

  ModelInfo InfoOf(int64_t step, bool average) const;
  bool WriteBestAgain(const ResumePoint& resume, const ModelInfo& info);
  void WriteBestOf(const CheckpointReader& reader, ModelInfo info);
  Arena TakeArena();
  void MissBest(int64_t step);
  void Note(const std::string& name, const ModelInfo& info, const std::string& trouble);
  void WriteWaitingBest();
  bool Write(const std::string& name, std::span<const float> weights, ModelInfo info);

  const config::Config& config_;
  const Graph& graph_;
  const Variables& variables_;
  const Progress& progress_;
  BackgroundThread& files_;
  Recorder& recorder_;
  std::string lost_;

  // Shared with the writer thread.
  mutable std::mutex mutex_;
  std::optional<Best> waiting_;  // the newest best weights that are not on disk
  Arena spare_;
  Retry retry_;                                  // for best.safetensors
  std::map<std::string, std::string> troubles_;  // file name → error
  std::map<std::ptrdiff_t, events::Summary::Model> saved_;
};

}  // namespace muster
