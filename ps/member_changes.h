// Who came and went in the middle of a run: told as it happens, in the log, in metrics.jsonl and to
// the launcher, and once more at the end.
//
// Owner: the coordinator. Used in the loop's thread.
#pragma once

#include <string>

#include "proto/events.pb.h"
#include "ps/reporter.h"

namespace muster {

class MemberChanges {
 public:
  explicit MemberChanges(Reporter& reporter) : reporter_(reporter) {}

  void Tell(events::MemberChange change);
  // What the summary says of them.
  void Put(events::Summary& summary) const { summary.MergeFrom(so_far_); }

 private:
  Reporter& reporter_;
  events::Summary so_far_;  // these changes alone
};

// "rank 1 (host a, pid 42) was lost at step 120: its connection ended; others compute 4 slices
// again; 3 workers go on"
std::string TextOf(const events::MemberChange& change);

}  // namespace muster
