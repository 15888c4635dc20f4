// A run and its checkpoints: what a checkpoint saves, where the run resumes, whether the workers
// still match, and how a replay (`muster verify`) compares.
//
// Owner: the run. Used on the loop thread.
#pragma once

#include <optional>
#include <string>

#include "proto/checkpoint.pb.h"
#include "ps/record/replay.h"
#include "ps/record/resume.h"
#include "ps/run/first_failure.h"
#include "ps/run/run_parts.h"

namespace muster {

class Resumption {
 public:
  // `parts` and `failure` must outlive this object. `resume`: where the run resumes, or null.
  Resumption(RunParts& parts, FirstFailure& failure, const ResumePoint* resume);

  bool is_resumed() const { return resumed_.has_value(); }
  // The state of the run at a step boundary.
  checkpoint::State Describe() const;

  // Call when the run is planned. Returns an error if the run is too large to count or does not
  // match the run to resume; otherwise "".
  std::string CheckPlan();
  // Whether the run was already complete, so that no workers are needed to write its final files.
  bool IsDoneAlready();
  // Stops a resumed run if its last evaluations require it. Returns whether the run is over.
  bool StopsEarly();

  // The run's last step, or the last step of the replay.
  int64_t LastStep() const { return replay_.LastStep(parts_.state.plan.total_steps); }
  // Whether W(step) has been evaluated on the set that drives decisions.
  bool IsEvaluated() const;
  // Whether the final test is still due.
  bool TestIsDue() const;
  // Called at a boundary. In a replay, compares the run with the original; a difference fails the
  // job.
  bool IsAsKept(bool is_end);
  void Put(events::Summary& summary) const { replay_.Put(summary); }

 private:
  void Restore(const ResumePoint& resume);
  std::string Misfit() const;

  RunParts& parts_;
  FirstFailure& failure_;
  std::optional<checkpoint::State> resumed_;
  Replay replay_;
};

}  // namespace muster
