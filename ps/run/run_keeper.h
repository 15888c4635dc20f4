// Records and saves a run: progress, checkpoints, weights and status. The recorder writes small
// files; a background thread writes large ones, in order.
//
// Owner: the run. Used on the loop thread.
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
  // All must outlive this object. `describe`: see Checkpoints::Describe.
  RunKeeper(const config::Config& config, const Graph& graph, const RunPosition& state,
            const Roster& roster, Engine& engine, Recorder& recorder,
            Checkpoints::Describe describe);

  void Restore(const ResumePoint& resume);
  // Called when the role of a worker changed. `slices` and `blocks`: the work that others take
  // over.
  void MemberChanged(events::MemberChange::Kind kind, uint32_t rank, const std::string& why,
                     int64_t slices = 0, int64_t blocks = 0);
  const std::string& last_loss() const { return last_loss_; }  // describes the last lost worker
  // The steps between two interval lines: run.log_every_steps, or an epoch if that is shorter.
  int64_t LogInterval() const;
  void StepEnded(std::chrono::steady_clock::time_point now);
  // Records an evaluation, the decision that follows from it, and its files.
  void EvaluationEnded(const EvaluationResult& result, const std::string& decision,
                       Evaluator& evaluator);
  // Whether a live progress line is due: at most five a second.
  bool LiveLineIsDue(std::chrono::steady_clock::time_point now);
  // Completes and records the summary (Recorder::Finish).
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
  std::string program_trouble;  // of the program that updates the weights, after the run

 private:
  // Writes checkpoints and weights. Declared last, so that it joins before what it reads is
  // destroyed.
  BackgroundThread files_;
};

}  // namespace muster
