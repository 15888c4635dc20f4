// The lines that tell of lost workers while a job runs. The server knows that a connection ended,
// the launcher how the process did, often a moment later: the line waits for that moment.
#pragma once

#include <vector>

#include "cli/job/job_display.h"
#include "cli/job/replacements.h"
#include "proto/events.pb.h"

namespace muster {

// Part of the supervisor; reads no clock.
class ToldLosses {
 public:
  // `wait`: whether workers are processes of this launcher, whose ends it learns.
  ToldLosses(bool wait, const Replacements& replacements, JobDisplay& display)
      : wait_(wait), replacements_(replacements), display_(display) {}

  // A member_change of a lost worker.
  void Tell(const events::Event& lost, double now);
  // Those whose end is known by now, or who have waited long enough; `all`: everybody.
  void Check(double now, bool all = false);
  double next_check() const;

 private:
  struct Waiting {
    events::Event event;
    double until = 0;
  };

  const bool wait_;
  const Replacements& replacements_;
  JobDisplay& display_;
  std::vector<Waiting> waiting_;  // in the order of their losses
};

}  // namespace muster
