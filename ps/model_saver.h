// What a run leaves behind in the run directory:
//
//   model.safetensors       the weights after the last complete step, as evaluations use them: the
//                           moving average with evaluation.use_ema
//   best.safetensors        those of the best evaluation
//   model-raw.safetensors   with use_ema: the weights themselves, after the last step
//   model-ema.safetensors   with ema_decay and without use_ema: the average
//
// Owner: the coordinator. Used in the loop's thread. All of it does nothing with an empty run.dir,
// or where weights are only evaluated.
#pragma once

#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_reader.h"
#include "ps/checkpoint/resume.h"
#include "ps/model_writer.h"
#include "ps/progress.h"
#include "ps/variables.h"

namespace muster {

class ModelSaver {
 public:
  // All outlive this.
  ModelSaver(const config::Config& config, const Graph& graph, const Variables& variables,
             const Progress& progress, bool evaluate_only)
      : config_(config),
        graph_(graph),
        variables_(variables),
        progress_(progress),
        evaluate_only_(evaluate_only),
        writer_(config, graph) {}

  // An evaluation of W(step) has ended, the last one of `progress`. If it is the best one, its
  // weights are copied, here in the loop: the workers compute the next step meanwhile, and the
  // server has nothing to do. Writing them costs the loop nothing.
  void OnEvaluated(int64_t step);
  // A run goes on from here: writes the best weights again, if it ended before they were in its
  // directory or they are damaged, from a checkpoint that has them.
  void Restore(const ResumePoint& resume);
  // What is to be said of the best weights so far, if a run that was resumed has them nowhere; ""
  // if it has, or a later evaluation was better.
  const std::string& lost() const { return lost_; }
  // What Restore has found damaged, and what has become of it; or "".
  const std::string& damaged() const { return damaged_; }
  // The run is over, and W(step) is what it reached. Nothing is updated any more.
  void SaveLast(int64_t step);

  bool writes() const { return !evaluate_only_ && writer_.writes(); }
  ModelWriter& writer() { return writer_; }
  const ModelWriter& writer() const { return writer_; }

 private:
  ModelInfo InfoOf(int64_t step, bool average) const;
  bool WriteBestAgain(const ResumePoint& resume, const ModelInfo& info);
  void WriteBestOf(const CheckpointReader& reader, ModelInfo info);

  const config::Config& config_;
  const Graph& graph_;
  const Variables& variables_;
  const Progress& progress_;
  const bool evaluate_only_;
  std::string lost_, damaged_;
  ModelWriter writer_;
};

}  // namespace muster
