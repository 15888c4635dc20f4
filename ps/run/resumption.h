// A run and its checkpoints: what a checkpoint keeps of it, where it resumes from, whether workers
// still fit, and with what a replay (`muster verify`) is compared.
//
// Owner: the run. Used in the loop's thread.
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
  // `parts` and `failure` outlive this. `resume`: where the run resumes from, or null.
  Resumption(RunParts& parts, FirstFailure& failure, const ResumePoint* resume);

  bool is_resumed() const { return resumed_.has_value(); }
  // The run at a step's boundary.
  checkpoint::State Describe() const;

  // The run is planned. Why its workers and its config do not make a run that can be counted, or
  // not the one that is resumed; "" if they do.
  std::string CheckPlan();
  // All of the run was done before: what is left to write needs no workers.
  bool IsDoneAlready();
  // Stops a resumed run early where its last evaluations say so. Whether it is over.
  bool StopsEarly();
  // What metrics.jsonl has so far, whatever the run's length was before.
  DueLines LinesSoFar() const;

  // Where the run ends: with its last step, or where the replay does.
  int64_t LastStep() const { return replay_.LastStep(parts_.state.plan.total_steps); }
  // W(step) has been evaluated on the set that chooses; … is to be, on the test set, at the end.
  bool IsEvaluated() const;
  bool TestIsDue() const;
  // At a boundary of a replay: whether the run is what it was. If not, that is a failure of the
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
