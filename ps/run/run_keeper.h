// What is recorded and kept of a run: its progress, checkpoints and weights, and what people see
// who look in. The recorder writes the small files; another thread writes the large ones, in order.
//
// Owner: the run. Used in the loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "common/base/background_thread.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"
#include "ps/evaluate/evaluator.h"
#include "ps/members/roster.h"
#include "ps/record/checkpoints.h"
#include "ps/record/model_saver.h"
#include "ps/record/progress.h"
#include "ps/record/recorder.h"
#include "ps/record/resume.h"
#include "ps/run/run_position.h"
#include "ps/run/run_watch.h"
#include "ps/update/engine.h"

namespace muster {

class RunKeeper {
 public:
  // All outlive this. `describe`: the state that a checkpoint keeps (Checkpoints::Describe).
  RunKeeper(const config::Config& config, const Graph& graph, const RunPosition& state,
            const Roster& roster, Engine& engine, Recorder& recorder,
            Checkpoints::Describe describe);

  // The run resumes from here.
  void Restore(const ResumePoint& resume);
  // The roles of the workers have changed. `slices` and `blocks`: what others are to compute.
  void MemberChanged(events::MemberChange::Kind kind, uint32_t rank, const std::string& why,
                     int64_t slices = 0, int64_t blocks = 0);
  const std::string& last_loss() const { return last_loss_; }  // of a worker, in words
  // A step has ended: its line in the metrics, and what a person sees.
  void StepEnded(std::chrono::steady_clock::time_point now);
  // An evaluation has ended: its line, with what follows from it in words, and its files.
  void EvaluationEnded(const EvaluationResult& result, const std::string& decision,
                       Evaluator& evaluator);
  // A line for a person's eyes, at most five a second.
  bool LiveLineIsDue(std::chrono::steady_clock::time_point now);
  // The last word on the run (Recorder::Finish).
  events::Summary Finish(events::Summary summary);

 private:
  const config::Config& config_;
  const RunPosition& state_;
  const Roster& roster_;
  std::string run_id_;
  std::string last_loss_;
  std::chrono::steady_clock::time_point next_live_;

 public:
  Recorder& recorder;
  Progress progress;
  ModelSaver saver;
  RunWatch watch;
  Checkpoints checkpoints;

 private:
  // Writes checkpoints and files of weights. Last: joined before what it reads is gone.
  BackgroundThread files_;
};

}  // namespace muster
