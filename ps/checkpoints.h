// The checkpoints of a run: when one is taken, what becomes of it, which ones stay.
//
// The state of step v is whole from the end of step v - 1 until the first update of step v: the
// optimizer's state and the average are changed in place. So one is taken right at a step's
// beginning, when the workers compute and the pool has nothing to do: it copies the tensors into
// memory that was touched before, and updates wait for that (copying()). A thread writes the copy
// while the run goes on. A disk that is too slow, full or gone never ends a run.
//
// Owner: the coordinator. Used in the loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/plan/step_plan.h"
#include "proto/checkpoint.pb.h"
#include "proto/config.pb.h"
#include "ps/checkpoint/checkpoint_thread.h"
#include "ps/checkpoint/resume.h"
#include "ps/checkpoint/retention.h"
#include "ps/checkpoint/tensor_image.h"
#include "ps/reporter.h"
#include "ps/thread_pool.h"
#include "ps/variables.h"
#include "ps/watch/status_file.h"

namespace muster {

class Checkpoints {
 public:
  using Clock = std::chrono::steady_clock;
  // What of the run a checkpoint is to keep besides the tensors; run, generation and config are
  // filled in.
  // Its name is its step, and `evaluated`.
  using Describe = std::function<checkpoint::State()>;

  // Waits until the best weights up to this step are on the disk, or cannot be. In the thread that
  // writes.
  using AwaitBest = std::function<void(int64_t step)>;

  // All outlive this. Without run.dir, or with checkpoint.keep_last of 0, there are none. `resume`:
  // where the run goes on from, or null.
  Checkpoints(const config::Config& config, const std::string& run_id, Variables& variables,
              ThreadPool& pool, Reporter& reporter, const ResumePoint* resume, Describe describe,
              AwaitBest await_best);
  ~Checkpoints();

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
  void OnEvaluated(int64_t step, double accuracy);

  // A checkpoint is being copied or written, or will be.
  bool busy() const { return copying() || writing_ || last_is_due_; }
  // Bytes of the tensors.
  size_t bytes() const { return image_ ? image_->bytes() : 0; }
  // Why the last one that was tried is not on the disk; "" if it is.
  const std::string& trouble() const { return trouble_; }
  // For people who look in; empty without checkpoints.
  std::optional<RunStatus::Checkpoint> Status(const StepPlan& plan, int64_t step) const;
  // The newest one that is on the disk, and where.
  std::optional<CheckpointName> newest() const { return newest_; }
  const std::string& newest_in() const { return newest_in_; }

 private:
  bool IsDue(const StepPlan& plan, int64_t step) const;
  void Take();
  void Copied();
  void Written(const std::string& trouble);
  void NoteFailure(const std::string& trouble);
  std::optional<double> AccuracyOf(int64_t step) const;
  void LeaveOut(int64_t step);

  const config::Checkpoint settings_;
  const std::string &run_id_, &run_dir_;
  Variables& variables_;
  ThreadPool& pool_;
  Reporter& reporter_;
  const Describe describe_;
  const AwaitBest await_best_;

  std::string config_text_;
  int64_t generation_ = 1;
  std::vector<KeptCheckpoint> kept_;    // oldest first
  std::shared_ptr<TensorImage> image_;  // null: no checkpoints are wanted
  std::vector<StoredTensor> tensors_;

  size_t copying_ = 0;  // jobs
  bool writing_ = false;
  CheckpointToWrite current_;  // being copied or written
  bool asked_ = false, last_is_due_ = false;
  std::optional<std::pair<int64_t, double>> evaluated_;  // the last step, and its accuracy
  std::string trouble_;
  std::optional<CheckpointName> newest_;
  std::string newest_in_;
  int64_t left_out_ = 0;
  bool slow_said_ = false;
  Clock::time_point last_taken_ = Clock::now(), retry_at_;
  std::unique_ptr<CheckpointThread> thread_;  // last: joined first
};

}  // namespace muster
