// What a run leaves behind in the run directory:
//
//   model.safetensors       the weights after the last complete step, as evaluations use them: the
//                           moving average with evaluation.use_ema
//   best.safetensors        those of the best evaluation
//   model-raw.safetensors   with use_ema: the weights themselves, after the last step
//   model-ema.safetensors   with ema_decay and without use_ema: the average
//
// Owner: the run keeper. Used in the loop's thread; another one writes: copies of the best
// weights, and the last weights, which do not change any more. All of it does nothing with an empty
// run.dir.
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
  // All outlive this.
  ModelSaver(const config::Config& config, const Graph& graph, const Variables& variables,
             const Progress& progress, BackgroundThread& files, Recorder& recorder)
      : config_(config),
        graph_(graph),
        variables_(variables),
        progress_(progress),
        files_(files),
        recorder_(recorder) {}

  // An evaluation of W(step) has ended, the last one of `progress`. If it is the best one, its
  // weights are copied, here in the loop: the workers compute the next step meanwhile, and the
  // server has nothing to do. Writing them costs the loop nothing.
  void OnEvaluated(int64_t step);
  // A run goes on from here: writes the best weights again, if it ended before they were in its
  // directory or they are damaged, from a checkpoint that has them. Warns of what is damaged, and
  // of what is lost.
  void Restore(const ResumePoint& resume);
  // What is to be said of the best weights so far, if a run that was resumed has them nowhere; ""
  // if it has, or a later evaluation was better.
  const std::string& lost() const { return lost_; }
  // Writes these best weights to best.safetensors. While one copy is being written another can
  // wait; a newer one takes its place.
  void WriteBest(std::span<const float> weights, const ModelInfo& info);
  // Best weights that the disk did not take are written again: before a checkpoint that tells of
  // them, for no run that is resumed from it makes them again; and when it is time.
  void SubmitBest();
  void SubmitBestIfDue();
  // The run is over, and W(step) is what it reached. Nothing is updated any more. Ready when
  // nothing is left to be written.
  std::future<void> SaveLast(int64_t step);

  bool writes() const { return !config_.run().dir().empty(); }
  // The files that were written, in the order in which the summary has them.
  std::map<std::ptrdiff_t, events::Summary::Model> saved() const;
  // What could not be written, and why; "" if nothing is missing.
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
  // In the thread that writes.
  void WriteWaitingBest();
  bool Write(const std::string& name, std::span<const float> weights, ModelInfo info);

  const config::Config& config_;
  const Graph& graph_;
  const Variables& variables_;
  const Progress& progress_;
  BackgroundThread& files_;
  Recorder& recorder_;
  std::string lost_;

  // Shared with the thread that writes.
  mutable std::mutex mutex_;
  std::optional<Best> waiting_;  // the newest best weights that are not on the disk
  Arena spare_;
  Retry retry_;                                  // of the best weights
  std::map<std::string, std::string> troubles_;  // name of a file → why
  std::map<std::ptrdiff_t, events::Summary::Model> saved_;
};

}  // namespace muster
