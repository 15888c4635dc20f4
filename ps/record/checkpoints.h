// The checkpoints of a run: when one is taken, and what becomes of it.
//
// The state of step v is whole from the end of step v - 1 until the first update of step v: the
// optimizer's state and the average are changed in place. So one is taken right at a step's
// beginning, when the workers compute and the pool has nothing to do: it copies the tensors into
// memory that was touched before, and updates wait for that (copying()). Another thread
// writes the copy while the run goes on. A disk that is too slow, full or gone never ends a run.
//
// Owner: the run keeper. Used in the loop's thread.
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
  // The state of the run that a checkpoint keeps besides the tensors; run, generation, config and
  // metrics are filled in. Its name is its step, and `evaluated`.
  using Describe = std::function<checkpoint::State()>;

  // All outlive this. Without run.dir, or with checkpoint.keep_last of 0, there are none.
  Checkpoints(const config::Config& config, const std::string& run_id, Variables& variables,
              ThreadPool& pool, BackgroundThread& files, Recorder& recorder, Describe describe);
  // The run goes on from here.
  void Restore(const ResumePoint& resume) { kept_.Restore(resume); }

  // The run is at a step's boundary, and nothing has been updated since. Takes a checkpoint if one
  // is due, or was asked for.
  void AtBoundary(const StepPlan& plan, int64_t step);
  // Until then no state may be changed.
  bool copying() const { return copying_ > 0; }
  // At the next boundary, whatever is due.
  void Ask() { asked_ = true; }
  // The run has ended at this boundary, where it stays: one is taken as soon as it can be.
  void TakeLast();
  // Weights of a checkpoint have been evaluated.
  void OnEvaluated(int64_t step, double accuracy) { kept_.OnEvaluated(step, accuracy); }

  // A checkpoint is being copied or written, or will be.
  bool busy() const { return copying() || writing_ || last_is_due_; }
  // Bytes of the tensors.
  size_t bytes() const { return image_ ? image_->bytes() : 0; }
  // Why the last one that was tried is not on the disk; "" if it is.
  const std::string& trouble() const { return retry_.trouble(); }
  // For people who look in; empty without checkpoints.
  std::optional<RunStatus::Checkpoint> Status(const StepPlan& plan, int64_t step) const;
  // The checkpoints that are on the disk.
  const KeptCheckpoints& kept() const { return kept_; }

 private:
  bool IsDue(const StepPlan& plan, int64_t step);
  void Take();
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

  std::string config_text_;
  KeptCheckpoints kept_;
  std::shared_ptr<TensorImage> image_;  // null: no checkpoints are wanted
  std::vector<StoredTensor> tensors_;

  size_t copying_ = 0;  // jobs
  bool writing_ = false;
  CheckpointToWrite current_;                        // being copied or written …
  std::shared_future<checkpoint::Metrics> metrics_;  // … with these
  bool asked_ = false, last_is_due_ = false;
  Retry retry_;
  bool slow_said_ = false;
  Clock::time_point last_taken_ = Clock::now();
};

}  // namespace muster
