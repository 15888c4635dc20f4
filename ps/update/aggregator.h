// Turns partial gradients into new weights. When all parts of a chunk have arrived, they are added
// and applied in one pass. If the whole gradient must be known first (clip_norm, SKIP_STEP, a loss
// scale), there are two phases: all sums, then all updates. With optimizer.type PROGRAM, another
// process turns the mean gradient into the new weights.
//
// Owner: the server's loop, which makes all calls. The arithmetic runs in the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "common/base/memory.h"
#include "common/plan/chunks.h"
#include "ps/update/find_nonfinite.h"
#include "ps/update/observation_sums.h"
#include "ps/update/optimizer.h"
#include "ps/update/partial_gradients.h"
#include "ps/update/segments.h"
#include "ps/update/thread_pool.h"
#include "ps/update/variables.h"

namespace muster {

class Aggregator {
 public:
  // Called on the loop thread for every chunk of W(version) as soon as it is written.
  using Publish = std::function<void(int64_t version, size_t chunk)>;

  // `variables`, `pool` and `kernels` must outlive this object. `may_skip`: a step
  // whose gradient is not finite changes nothing (MaySkipSteps). Memory: one gradient buffer of 4
  // bytes per parameter for two-phase steps, and 1/8 of one for clip_norm.
  Aggregator(Variables& variables, ThreadPool& pool, std::vector<Chunk> chunks,
             const config::Optimizer& optimizer, const UpdateKernelTable& kernels, bool may_skip,
             Publish publish);

  // What changes the weights if optimizer.type is PROGRAM. It reads `gradient` and changes
  // `weights` from `update` until it calls `done` on the loop thread. `weights` holds
  // W(step).
  struct Program {
    std::span<float> gradient;
    std::span<const float> weights;
    std::function<void(int64_t step, std::function<void(double learning_rate)> done)> update;
  };
  void UpdateBy(Program program);

  // Called when W(step) is complete. From then on, parts of its gradient may arrive for this number
  // of slices.
  void BeginStep(int64_t step, int64_t slices);
  // What to do with the gradient when all losses of the step have arrived.
  struct Decision {
    double learning_rate = 0;
    double loss_scale = 1;  // workers have multiplied the gradient by it; needs `may_skip`
    // The gradient of trained variables is divided by it; 0: the gradient is 0.
    double weight = 1;
    // Discards the gradient: W(step + 1) is W(step), and nothing else changes.
    bool skip = false;
    bool evaluate_average = false;  // workers will evaluate the average of W(step + 1)
    Observe observe = Observe::kNothing;
  };
  void Proceed(const Decision& decision);

  // See PartialGradients::Add.
  bool Add(std::optional<uint32_t> rank, size_t chunk, const TreeNode& node, bool empty,
           Payload payload);

  // Whether nothing of this step has been updated or added yet.
  bool collects() const { return phase_ == Phase::kCollecting; }
  // The observation of a complete step, if it was requested and the step was not skipped.
  std::optional<Observation> TakeObservation();

  bool StepIsComplete() const { return !sums() && done_ == chunks_.size(); }
  // The first non-finite value of this step.
  const std::optional<Nonfinite>& nonfinite() const { return nonfinite_; }
  // Whether this step changes nothing, because of Decision::skip or because of `may_skip` and
  // nonfinite(). If nonfinite() is set and this is false, the step will never complete.
  bool skips() const { return phase_ == Phase::kKeeping; }
  // Whether the first phase of a two-phase step is running.
  bool sums() const { return phase_ == Phase::kAveraging; }
  // Whether it is known if a two-phase step skips().
  bool has_decided() const { return !collects() && !sums(); }

  const std::vector<Chunk>& chunks() const { return chunks_; }
  const PartialGradients& gradients() const { return gradients_; }
  // The number of chunks finished in this phase.
  size_t done() const { return done_; }
  // The number of complete chunks that wait for a thread.
  size_t waiting() const { return ready_.size(); }
  // Whether the program's update has begun, so that no worker owes anything.
  bool is_program_updating() const {
    return phase_ == Phase::kUpdating || phase_ == Phase::kTaking;
  }
  // The learning rate of the program's last update.
  std::optional<double> program_rate() const { return program_rate_; }
  // The instruction set of the arithmetic, as in server.instruction_set.
  const char* instruction_set() const { return optimizer_.kernels().name; }

 private:
  // What happens to a chunk when all its parts have arrived.
  enum class Phase {
    kCollecting,   // nothing, because losses are missing
    kFusedUpdate,  // the parts are added and applied
    kAveraging,    // the parts are added
    kApplying,     // the sum is applied
    kUpdating,     // nothing, until the program has updated its weights
    kTaking,       // the program's weights are copied
    kKeeping,      // the weights are copied to the other weight buffer
  };
  // Work on a chunk. Runs on any thread and returns true if all values are finite.
  using Job = std::function<bool()>;

  void Enter(Phase phase);
  void SubmitReady();
  Job MakeJob(size_t chunk);
  Job KeepJob(const Chunk& chunk);
  Job AverageJob(size_t chunk);
  Job UpdateJob(size_t chunk);
  Job TakeJob(const Chunk& chunk);
  static Job Traced(const char* kind, int64_t step, size_t chunk, Job job);
  void Finish(size_t chunk, bool finite);
  void EndAveraging();

  Variables& variables_;
  ThreadPool& pool_;
  const std::vector<Chunk> chunks_;
  const Optimizer optimizer_;
  const std::vector<Segment> segments_;
  const bool may_skip_;
  const bool two_phase_;
  const Publish publish_;
  PartialGradients gradients_;
  Program program_;
  std::optional<double> program_rate_;
  Arena average_memory_;              // only if two_phase_, without a program
  std::span<float> averaged_;         // only if two_phase_
  std::vector<double> line_squares_;  // of averaged_; only with clip_norm

  int64_t step_ = -1;
  Phase phase_ = Phase::kCollecting;
  bool evaluate_average_ = false;
  float unscale_ = 1;  // 1 / Decision::loss_scale
  float weigh_ = 1;    // 1 / Decision::weight
  UpdateRule rule_;
  std::vector<ChunkObserver> observers_;  // by chunk, in an observed step
  std::set<size_t> ready_;                // complete chunks that wait for a thread in this phase
  size_t running_ = 0;
  size_t done_ = 0;  // number of chunks in this phase
  std::optional<Nonfinite> nonfinite_;
};

}  // namespace muster
