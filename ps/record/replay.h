// A run that is done again (`muster verify`): what it is compared with, and how that came out.
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
  // Where the run goes on from, or null. Without checkpoints to compare with this is no replay.
  explicit Replay(const ResumePoint* resume) {
    if (resume != nullptr) kept_ = resume->compared_with;
  }

  bool is_on() const { return !kept_.empty(); }
  // Nothing is left to compare with.
  bool over() const { return same_ == kept_.size(); }
  // There is a checkpoint of this step.
  bool IsDue(int64_t step) const { return !over() && kept_[same_]->state().step() == step; }
  // Where a run of so many steps ends.
  int64_t LastStep(int64_t total_steps) const;

  // Compares what the run is at a boundary with each checkpoint of that step. The pool changes
  // nothing, and the evaluation of the weights is over, if one was due. `is_end`: no step follows.
  // Returns how they differ, or "". Throws Error(kData): a checkpoint cannot be read.
  std::string Compare(const checkpoint::State& now, Variables& variables, bool is_end);
  void Put(events::Summary& summary) const;

 private:
  std::vector<std::shared_ptr<const CheckpointReader>> kept_;  // oldest first
  size_t same_ = 0;                                            // so many of them have the same bits
  std::string difference_;
};

}  // namespace muster
