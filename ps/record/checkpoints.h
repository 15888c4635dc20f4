// The checkpoints of a run: when to take them, and how they are written.
//
// Optimizer state and average are updated in place, so the state of step v is only complete from
// the end of step v - 1 until the first update of step v. A checkpoint is therefore taken at the
// start of a step, when the workers compute and the pool is idle: it copies the tensors into memory
// that has been touched before, while updates wait (copying()). Another thread writes the copy
// while the run continues. A slow, full or missing disk never ends a run.
//
// Owner: the run keeper. Used on the loop thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/background_thread.h"
#include "common/base/retry.h"
#include "common/plan/step_plan.h"
#include "proto/checkpoint.pb.h"
#include "proto/config.pb.h"
#include "ps/record/kept_checkpoints.h"
#include "ps/record/recorder.h"
#include "ps/record/resume.h"
#include "ps/record/tensor_image.h"
#include "ps/record/write_checkpoint.h"
#include "ps/update/thread_pool.h"
#include "ps/update/variables.h"

namespace muster {

class Checkpoints {
 public:
  using Clock = std::chrono::steady_clock;
  // The state that a checkpoint saves besides the tensors. Checkpoints fills in run id, generation,
  // config, time, metrics and events. Step and `evaluated` determine the checkpoint's name.
  using Describe = std::function<checkpoint::State()>;

  // All must outlive this object. Without run.dir, or if checkpoint.keep_last is 0, there are no
  // checkpoints.
  Checkpoints(const config::Config& config, const std::string& run_id, Variables& variables,
              ThreadPool& pool, BackgroundThread& files, Recorder& recorder, Describe describe);
  void Restore(const ResumePoint& resume);
  // Fetches the state of the program that updates the weights, after the update to W(step). It must
  // call `done` on the loop thread, with null if the program has failed.
  using ProgramState = std::shared_ptr<const std::string>;
  using Fetch = std::function<void(int64_t step, std::function<void(ProgramState)> done)>;
  void SaveProgram(Fetch fetch) { fetch_program_ = std::move(fetch); }

  // Called at a step boundary. Takes a checkpoint if one is due or requested.
  void AtBoundary(const StepPlan& plan, int64_t step);
  // The state must not change while this is true.
  bool copying() const { return copying_ > 0; }
  // Requests a checkpoint at the next boundary.
  void Ask() { asked_ = true; }
  // Called when the run has ended at this boundary. Takes a checkpoint as soon as possible.
  void TakeLast();
  // Called after an evaluation, possibly of the weights of a checkpoint.
  void OnEvaluated(int64_t step, double accuracy) { kept_.OnEvaluated(step, accuracy); }

  // Whether a checkpoint is pending, being copied or being written.
  bool busy() const { return copying() || writing_ || last_is_due_; }
  size_t bytes() const { return image_ ? image_->bytes() : 0; }
  // Why the last attempt failed, or "".
  const std::string& trouble() const { return retry_.trouble(); }
  // For the status; empty without checkpoints.
  std::optional<events::Status::Checkpoint> Status(const StepPlan& plan, int64_t step) const;
  const KeptCheckpoints& kept() const { return kept_; }

 private:
  bool IsDue(const StepPlan& plan, int64_t step);
  void Take();
  void PartCopied();
  void Copied();
  void Written(const std::string& trouble);
  void NoteFailure(const std::string& trouble);
  void LeaveOut(int64_t step);

  const config::Checkpoint settings_;
  const std::string &run_id_, &run_dir_;
  Variables& variables_;
  ThreadPool& pool_;
  BackgroundThread& files_;
  Recorder& recorder_;
  const Describe describe_;
  Fetch fetch_program_;

  std::string config_text_;
  KeptCheckpoints kept_;
  std::shared_ptr<TensorImage> image_;  // null: checkpoints are disabled
  std::vector<StoredTensor> tensors_;

  size_t copying_ = 0;  // number of parts that are being copied
  bool writing_ = false;
  CheckpointToWrite current_;                    // the newest one, perhaps not on disk yet
  std::shared_future<RunLog::Kept> files_kept_;  // of current_
  bool asked_ = false, last_is_due_ = false;
  Retry retry_;
  bool slow_said_ = false;
  Clock::time_point last_taken_ = Clock::now();
};

}  // namespace muster
