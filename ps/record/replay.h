// Compares a repeated run (`muster verify`) with the checkpoints of the original.
//
// Owner: the resumption.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/events.pb.h"
#include "ps/record/resume.h"
#include "ps/update/variables.h"

namespace muster {

class Replay {
 public:
  // `resume`: where the run resumes, or null. Without checkpoints to compare, this is not a replay.
  explicit Replay(const ResumePoint* resume) {
    if (resume != nullptr) kept_ = resume->compared_with;
  }

  bool is_on() const { return !kept_.empty(); }
  bool over() const { return same_ == kept_.size(); }
  // Whether there is a checkpoint of this step to compare.
  bool IsDue(int64_t step) const { return !over() && kept_[same_]->state().step() == step; }
  // The last step of a replay of a run with this many steps.
  int64_t LastStep(int64_t total_steps) const;

  // Compares the state at a boundary with each checkpoint of that step. Requires that the pool is
  // idle and that an evaluation that was due has ended. `is_end`: no step follows. Returns the
  // difference or "". Throws Error(kData) if a checkpoint cannot be read.
  std::string Compare(const checkpoint::State& now, Variables& variables, bool is_end);
  void Put(events::Summary& summary) const;

 private:
  std::vector<std::shared_ptr<const CheckpointReader>> kept_;  // oldest first
  size_t same_ = 0;  // number of checkpoints with the same bits
  std::string difference_;
};

}  // namespace muster
